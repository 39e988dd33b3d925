// The keys of the tree, after the tree pattern of the ARIA authoring practices. Pure.

/**
 * Returns what a key does on the agent `path`: `{ go: path }`, `{ fold: path }`,
 * `{ unfold: [paths] }`, `{ zoom: 1 | -1 | 0 }`, `{ fit: true }`, `{ stay: true }` for a key that
 * is handled but changes nothing, or `null` for one that is not handled.
 *
 * `items` are those of `arrange`: the arrow keys follow their order.
 */
export function keyMeaning(event, items, path) {
  if (event.altKey || event.ctrlKey || event.metaKey) return null;
  const zoom = { "+": 1, "=": 1, "-": -1, 0: 0 }[event.key];
  if (zoom !== undefined) return { zoom };
  if (event.key === "f" || event.key === "F") return { fit: true };
  const at = items.findIndex((item) => item.path === path);
  if (at < 0) return items.length ? walkFromNowhere(event.key, items) : null;
  const item = items[at];
  switch (event.key) {
    case "ArrowDown":
      return to(items[at + 1]);
    case "ArrowUp":
      return to(items[at - 1]);
    case "PageDown":
      return to(items[Math.min(at + 10, items.length - 1)]);
    case "PageUp":
      return to(items[Math.max(at - 10, 0)]);
    case "Home":
      return to(items[0]);
    case "End":
      return to(items.at(-1));
    case "ArrowRight":
      if (item.expanded === false) return { unfold: [path] };
      return to(item.expanded ? items[at + 1] : undefined);
    case "ArrowLeft":
      if (item.expanded) return { fold: path };
      return to(items.find((other) => other.path === item.parent));
    case "*":
      return {
        unfold: items.filter(({ parent }) => parent === item.parent).map((one) => one.path),
      };
    case "Enter":
    case " ":
      return { go: path };
    default:
      return null;
  }
}

function walkFromNowhere(key, items) {
  const walks = ["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Home", "End"];
  return walks.includes(key) ? { go: items[0].path } : null;
}

// A key is handled at either end too, so that the page does not scroll.
function to(item) {
  return item ? { go: item.path } : { stay: true };
}
