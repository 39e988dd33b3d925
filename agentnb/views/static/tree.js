// The tree of agents: one card for each that is not in a collapsed branch. It is rearranged only when
// agents are added, branches open or close, or the filter changes; otherwise a frame updates only the
// cards of changed agents.

import { Card } from "./card.js";
import { make, setAttribute } from "./dom.js";
import { filtered, isFiltering } from "./filter.js";
import { keyMeaning } from "./keys.js";
import { arrange, connect, descendants } from "./layout.js";
import { MARGIN } from "./scale.js";
import { isFinal } from "./status.js";
import { Viewport } from "./viewport.js";

/** For changes that the run made, not the user: a fit must not enlarge the tree. */
const BY_ITSELF = { mayGrow: false };

export class Tree {
  selected = "root";
  /** The number of agents that match the filter, and of all. */
  counts = { matching: 0, all: 0 };
  #viewModel;
  #onSelect;
  #onZoom;
  #cards = new Map();
  #items = [];
  #rows = new Map();
  #folded = new Set();
  /** Branches collapsed while a filter is on: the earlier state is kept apart. */
  #foldedInFilter = new Set();
  #filter = { text: "", statuses: new Set() };
  #matching = null;

  /** `viewModel` has the agents at the shown time; `onSelect(path)` is called for a new choice. */
  constructor(viewModel, { pane, onSelect, onZoom, signal }) {
    this.#viewModel = viewModel;
    this.#onZoom = onZoom;
    this.#onSelect = onSelect;
    this.element = make("div", "agentnb-tree", {
      role: "tree",
      "aria-label": "Agents of this run",
    });
    this.viewport = new Viewport(
      this.element,
      pane,
      () => {
        this.#place();
        onZoom();
      },
      signal,
    );
    this.viewport.stage.addEventListener("click", (event) => this.#click(event), { signal });
    this.element.addEventListener("keydown", (event) => this.#key(event), { signal });
  }

  /** Shows changed agents; `paths` may include new agents, and hidden ones. */
  update(paths, { added = false } = {}) {
    if (this.#matching && (added || this.#matchesDiffer(paths))) this.arrange(undefined, BY_ITSELF);
    else if (added) this.arrange(paths, BY_ITSELF);
    else this.#refreshAll(paths);
  }

  /**
   * Rearranges the tree, and keeps what the user looks at in place. If `paths` is given, only their
   * cards are updated. `mayGrow` is whether a fit may enlarge the tree.
   */
  arrange(paths, { mayGrow = true } = {}) {
    const anchor = this.#anchor();
    const { rows, childrenOf, exists, ancestorsOf } = this.#viewModel;
    const all = [...rows()];
    const filtering = isFiltering(this.#filter);
    const found = filtering ? filtered(all, ancestorsOf, this.#filter) : null;
    this.#matching = found?.matching ?? null;
    this.counts = { matching: found ? found.matching.size : all.length, all: all.length };
    const shown = found ? (path) => found.shown.has(path) : undefined;
    const { items, ...extent } = arrange(childrenOf, { folded: this.#closed, shown, exists });
    this.#items = items;
    this.#rows = new Map(items.map((item) => [item.path, item]));
    this.viewport.draw(extent, connect(items), { mayGrow });
    // No items: the tree has not begun.
    setAttribute(this.element, "aria-busy", items.length ? null : "true");
    this.#replaceCards();
    this.#place();
    this.#refreshAll(paths ?? this.#rows.keys());
    this.#mark();
    const after = this.#rows.get(anchor?.path);
    if (after) this.viewport.keep(anchor.top, this.viewport.topOf(after.row));
    this.#onZoom();
  }

  /** Updates the times of visible working agents. */
  tick() {
    const now = this.#viewModel.time();
    const { first, last } = this.viewport.rowsInView();
    for (const { path, row, expanded } of this.#items) {
      if (row < first || row > last) continue;
      const agent = this.#viewModel.row(path);
      if (isFinal(agent.status)) continue;
      this.#cards.get(path).tick(agent, now, expanded === false ? this.#hidden(path) : null);
    }
  }

  filter(filter) {
    this.#filter = filter;
    this.#foldedInFilter.clear();
    this.arrange();
    const place = this.#rows.get(this.selected);
    if (place) this.viewport.reveal(place);
  }

  select(path, { focus = false } = {}) {
    const changed = path !== this.selected;
    this.selected = path;
    this.#mark();
    const place = this.#rows.get(path);
    if (place) this.viewport.reveal(place);
    if (focus) this.#cards.get(path)?.element.focus({ preventScroll: true });
    if (changed) this.#onSelect(path);
  }

  /**
   * Selects an agent and unfolds its ancestors; if the filter hides it, selects the nearest one.
   */
  show(path) {
    if (!this.#rows.has(path)) this.#unfold(this.#viewModel.ancestorsOf(path));
    const shown = this.#nearestShown(path);
    if (shown) this.select(shown, { focus: true });
  }

  /** Moves the keyboard focus to the tree. */
  focus() {
    this.element.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  }

  collapseAll() {
    const { childrenOf } = this.#viewModel;
    for (const row of this.#viewModel.rows()) {
      if (row.parent !== null && childrenOf(row.path).length) this.#closed.add(row.path);
    }
    this.#afterFolding();
  }

  expandAll() {
    this.#closed.clear();
    this.#afterFolding();
  }

  get #closed() {
    return isFiltering(this.#filter) ? this.#foldedInFilter : this.#folded;
  }

  #fold(path) {
    this.#closed.add(path);
    this.#afterFolding();
  }

  #unfold(paths) {
    for (const path of paths) this.#closed.delete(path);
    this.#afterFolding();
  }

  // If the selected agent is in a collapsed branch now, select the branch.
  #afterFolding() {
    const focused = this.element.contains(document.activeElement);
    this.arrange();
    const shown = this.#nearestShown(this.selected);
    if (shown && shown !== this.selected) this.select(shown);
    if (focused) this.#cards.get(this.selected)?.element.focus({ preventScroll: true });
  }

  #replaceCards() {
    const focused = document.activeElement;
    for (const [path, card] of this.#cards) {
      if (this.#rows.has(path)) continue;
      card.remove();
      this.#cards.delete(path);
    }
    let before = null;
    for (const { path } of this.#items) {
      let card = this.#cards.get(path);
      if (!card) {
        card = new Card(path, this.viewport.toggles);
        this.#cards.set(path, card);
      }
      // A screen reader reads the elements in their order: it must be that of the outline.
      const next = before ? before.nextSibling : this.element.firstChild;
      if (next !== card.element) this.element.insertBefore(card.element, next);
      before = card.element;
    }
    if (focused !== document.activeElement && this.element.contains(focused)) focused.focus();
  }

  #place() {
    for (const item of this.#items) {
      this.#cards.get(item.path).place(item, this.viewport.sizes, MARGIN);
    }
  }

  // A change of a hidden agent updates the card of its collapsed branch.
  #refreshAll(paths) {
    const now = this.#viewModel.time();
    const touched = new Set();
    for (const path of paths) touched.add(this.#nearestShown(path));
    touched.delete(undefined);
    for (const path of touched) this.#refresh(path, now);
  }

  #refresh(path, now) {
    const hidden = this.#rows.get(path).expanded === false ? this.#hidden(path) : null;
    const matching = this.#matching === null || this.#matching.has(path);
    this.#cards.get(path).update(this.#viewModel.row(path), now, { hidden, matching });
  }

  #hidden(path) {
    return descendants(this.#viewModel.childrenOf, path)
      .filter(this.#viewModel.exists)
      .map((below) => this.#viewModel.row(below));
  }

  #nearestShown(path) {
    if (this.#rows.has(path)) return path;
    return this.#viewModel.ancestorsOf(path).find((above) => this.#rows.has(above));
  }

  #matchesDiffer(paths) {
    const rows = paths.map((path) => this.#viewModel.row(path));
    const { matching } = filtered(rows, () => [], this.#filter);
    return paths.some((path) => matching.has(path) !== this.#matching.has(path));
  }

  // The selected agent if it is in view, else the first one in view.
  #anchor() {
    const { first, last } = this.viewport.rowsInView();
    const inView = (item) => item && item.row >= first + 2 && item.row <= last - 3;
    const selected = this.#rows.get(this.selected);
    const found = inView(selected) ? selected : this.#items.find(inView);
    return found && { path: found.path, top: this.viewport.topOf(found.row) };
  }

  #mark() {
    const focusable = this.#rows.has(this.selected) ? this.selected : this.#items[0]?.path;
    for (const [path, card] of this.#cards) card.select(path === this.selected, path === focusable);
  }

  #click(event) {
    const toggle = event.target.closest("[data-toggle]");
    if (toggle) {
      const path = toggle.dataset.toggle;
      if (this.#closed.has(path)) this.#unfold([path]);
      else this.#fold(path);
      return;
    }
    const item = event.target.closest("[role=treeitem]");
    if (item) this.select(item.dataset.agentPath, { focus: true });
  }

  #key(event) {
    const item = event.target.closest("[role=treeitem]");
    const meaning = item && keyMeaning(event, this.#items, item.dataset.agentPath);
    if (!meaning) return;
    event.preventDefault();
    event.stopPropagation();
    if (meaning.go) this.select(meaning.go, { focus: true });
    if (meaning.fold) this.#fold(meaning.fold);
    if (meaning.unfold) this.#unfold(meaning.unfold);
    if (meaning.fit) this.viewport.fit();
    if (meaning.zoom === 0) this.viewport.naturalSize();
    else if (meaning.zoom) this.viewport.step(meaning.zoom);
  }
}
