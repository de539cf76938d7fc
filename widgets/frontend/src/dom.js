// Making elements. Text goes in as text, never as markup: names come from traces, and a trace may come from anyone.

export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== null));
  return element;
}

export function makeButton(text, label, onClick) {
  const button = make("button", "", text);
  button.type = "button";
  button.title = label;
  button.setAttribute("aria-label", label);
  button.addEventListener("click", onClick);
  return button;
}

export function makeSwatch(fill) {
  const swatch = make("span", "ss-swatch");
  swatch.style.background = fill;
  return swatch;
}
