// Makes elements of an answer that the kernel has laid out, from a list of what may be there. Whatever is
// not on the list becomes text.

import { make } from "./dom.js";

const RICH_TAGS = new Set(
  "a blockquote br code em h1 h2 h3 h4 h5 h6 hr li ol p pre s strong table tbody td th thead tr ul".split(
    " ",
  ),
);
const RICH_ADDRESS = /^(https?:\/\/|mailto:)/i;
const RICH_DEPTH = 100;

/** Elements and text nodes of what the kernel sent. */
export function richNodes(parts, depth = 0) {
  if (!Array.isArray(parts) || depth > RICH_DEPTH) return [];
  return parts.map((part) => (typeof part === "string" ? part : richNode(part, depth)));
}

function richNode(part, depth) {
  const [tag, attributes, ...inner] = Array.isArray(part) ? part : [];
  if (!RICH_TAGS.has(tag)) return make("span", "", {}, ...richNodes(inner, depth + 1));
  // Headings of an answer are none of the page's.
  const heading = /^h[1-6]$/.exec(tag);
  const name = heading ? "p" : tag;
  const element = make(name, heading ? "agentnb-rich-heading" : "", allowed(tag, attributes ?? {}));
  element.append(...richNodes(inner, depth + 1));
  return element;
}

function allowed(tag, { href, start, align }) {
  if (tag === "a") {
    const isSafe = typeof href === "string" && RICH_ADDRESS.test(href);
    return isSafe ? { href, rel: "noopener noreferrer nofollow", target: "_blank" } : {};
  }
  if (tag === "ol" && /^\d{1,9}$/.test(start ?? "")) return { start };
  if (tag === "pre") return { tabindex: 0 };
  const isAligned = (tag === "td" || tag === "th") && ["center", "right"].includes(align);
  return isAligned ? { "data-align": align } : {};
}
