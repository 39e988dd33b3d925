// Makes elements of an answer that the kernel has laid out. Only the listed tags and a few
// attributes are allowed: any other tag becomes a plain `span`.

import { make } from "./dom.js";

const RICH_TAGS = new Set(
  "a blockquote br code em h1 h2 h3 h4 h5 h6 hr li ol p pre s strong table tbody td th thead tr ul".split(
    " ",
  ),
);
const RICH_ADDRESS = /^(https?:\/\/|mailto:)/i;
const RICH_DEPTH = 100;

/** Returns elements and strings for the parts that the kernel sent. */
export function richNodes(parts, depth = 0) {
  if (!Array.isArray(parts) || depth > RICH_DEPTH) return [];
  return parts.map((part) => (typeof part === "string" ? part : richNode(part, depth)));
}

function richNode(part, depth) {
  const [tag, attributes, ...inner] = Array.isArray(part) ? part : [];
  if (!RICH_TAGS.has(tag)) return make("span", "", {}, ...richNodes(inner, depth + 1));
  // An answer's headings become paragraphs, so that they are not among the page's headings.
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
