// Making elements. Text goes in as text, never as markup: names come from traces, and a trace may come from anyone.

/**
 * An element with a class and children. Keys pressed on it are the timeline's own: JupyterLab's shortcuts match the element that has
 * the focus before they look at what is around it, so each element says for itself that it takes none (0 0 would restart the kernel).
 */
export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  element.dataset.lmSuppressShortcuts = "true";
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Say to screen readers what an element is: its role, and what ARIA calls label, pressed, live, … */
export function aria(element, words) {
  for (const [name, value] of Object.entries(words)) element.setAttribute(name === "role" ? name : `aria-${name}`, value);
}

export function makeButton(text, label, onClick) {
  const button = make("button", "", text);
  button.type = "button";
  button.title = label;
  aria(button, { label });
  button.addEventListener("click", onClick);
  return button;
}

export function makeSwatch(fill) {
  const swatch = make("span", "ss-swatch");
  swatch.style.background = fill;
  return swatch;
}

/** A list to choose from. @param {Object<string, string>} options words by value */
export function makeChoice(label, options, onChange) {
  const choice = make("select", "");
  for (const [value, words] of Object.entries(options)) {
    const option = make("option", "", words);
    option.value = value;
    choice.append(option);
  }
  choice.title = label;
  aria(choice, { label });
  choice.addEventListener("change", () => onChange(choice.value));
  return choice;
}
