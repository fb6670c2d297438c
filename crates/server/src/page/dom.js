// DOM elements. Text from the API only becomes a text node or the value of an attribute, because
// key names are not trusted.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Creates an element: `el("a", { href, class: "key" }, "text", child)`. A function as an attribute
 * becomes a listener. Null and false are left out.
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Creates an SVG element in the same way. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else set(element, name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets or removes an attribute, if that changes anything. */
export function set(element, name, value) {
  if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/**
 * Sets the text of an element, if that changes anything. An unchanged node is not laid out again
 * and keeps its selection.
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
