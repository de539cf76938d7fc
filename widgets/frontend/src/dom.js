// Making elements. Text goes in as text, never as markup: names come from traces, and a trace may come from anyone.

const TAKES_KEYS = /^(button|canvas|input|select)$/;

/**
 * An element with a class and children. Keys pressed on it are the timeline's own: JupyterLab's shortcuts match the element that has the focus
 * before they look at what is around it, so what takes the focus says for itself that it takes none (0 0 would restart the kernel). For
 * combined keys keys.js takes that back, so nothing around it may say so.
 *
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {string} className
 * @param {...(Node | string | null)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (TAKES_KEYS.test(tag)) element.dataset.lmSuppressShortcuts = "true";
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== null));
  return element;
}

/**
 * What draws on a canvas.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2DSettings} [settings]
 */
export const contextOf = (canvas, settings) => /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", settings));

/**
 * A text in which what stands between bars is a key, as children of an element.
 *
 * @param {string} text
 */
export const withKeys = (text) => text.split("|").map((part, place) => (place % 2 ? make("kbd", "", part) : part));

/**
 * Say to screen readers what an element is: its role, and what ARIA calls label, pressed, live, …
 *
 * @param {Element} element
 * @param {Record<string, string | number | boolean>} words
 */
export function aria(element, words) {
  for (const [name, value] of Object.entries(words)) element.setAttribute(name === "role" ? name : `aria-${name}`, `${value}`);
}

/**
 * A button. Who speaks to the page says what is written on it, so its name holds that; signs are no words.
 *
 * @param {string} text
 * @param {string} label
 * @param {() => void} onClick
 */
export function makeButton(text, label, onClick) {
  const button = make("button", "", text);
  button.type = "button";
  button.title = label;
  const known = label.toLowerCase().includes(text.replace(/^\W+/, "").toLowerCase());
  aria(button, { label: known ? label : `${text}: ${label}` });
  button.addEventListener("click", onClick);
  return button;
}

/** @param {string} fill */
export function makeSwatch(fill) {
  const swatch = make("span", "ss-swatch");
  swatch.style.background = fill;
  return swatch;
}

/**
 * Make the buttons in a box one stop for Tab; the arrow keys go from button to button. Called again, it takes new ones in.
 *
 * @param {HTMLElement} box
 */
export function rove(box) {
  const buttons = [...box.querySelectorAll("button")];
  buttons.forEach((button, place) => (button.tabIndex = place ? -1 : 0));
  box.onkeydown = (event) => {
    const step = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowLeft: -1 })[event.key];
    const next = buttons[buttons.indexOf(/** @type {HTMLButtonElement} */ (event.target)) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
}

/**
 * A list to choose from.
 *
 * @template {Record<string, string>} O
 * @param {string} label
 * @param {O} options words by value
 * @param {(value: keyof O) => void} onChange
 */
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
