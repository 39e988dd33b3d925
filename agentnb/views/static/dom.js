// Makes elements. A model's text only becomes text nodes or plain attributes: no markup is parsed, and
// no style or handler comes from data.

const SVG = "http://www.w3.org/2000/svg";

/** An element with a class, attributes (`null` and `false` leave one out) and children. */
export function make(tag, className, attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  return furnished(element, attributes, children);
}

/** The same for SVG. */
export function makeSvg(tag, attributes = {}, ...children) {
  return furnished(document.createElementNS(SVG, tag), attributes, children);
}

/** A button that submits nothing. */
export function makeButton(className, text, attributes = {}) {
  return make("button", `agentnb-button ${className}`, { type: "button", ...attributes }, text);
}

/** Sets the data of a text node if it differs: a write costs a layout, a comparison does not. */
export function setText(node, text) {
  if (node.data !== text) node.data = text;
}

/** Sets or removes an attribute, if that changes anything. */
export function setAttribute(element, name, value) {
  if (value === null || value === false || value === undefined) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, String(value));
  }
}

function furnished(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...children);
  return element;
}
