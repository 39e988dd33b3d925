// The tree of a run with its toolbar, in a pane beside the details: what `View` shows of a run.

import { make } from "./dom.js";
import { Pane } from "./pane.js";
import { Toolbar } from "./toolbar.js";
import { Tree } from "./tree.js";

export class TreePicture {
  hasReplay = true;
  #viewModel;
  #pane;
  #tree;
  #toolbar;

  constructor({ viewModel, details, isOver, onSelect, signal }) {
    this.#viewModel = viewModel;
    this.body = make("div", "agentnb-body");
    this.#pane = new Pane(this.body, isOver);
    this.#tree = new Tree(viewModel, {
      pane: this.#pane,
      onSelect,
      onZoom: () => this.#toolbar.zoom(viewport.zoom, viewport.isFitting),
      signal,
    });
    const { viewport } = this.#tree;
    this.#toolbar = new Toolbar(
      {
        filter: (filter) => {
          this.#tree.filter(filter);
          this.count();
        },
        collapseAll: () => this.#tree.collapseAll(),
        expandAll: () => this.#tree.expandAll(),
        zoomBy: (direction) => viewport.step(direction),
        naturalSize: () => viewport.naturalSize(),
        fit: () => viewport.fit(),
      },
      signal,
    );
    this.head = this.#toolbar.element;
    this.sized = viewport.element;
    this.body.append(viewport.element, details);
  }

  get selected() {
    return this.#tree.selected;
  }

  /** Shows changed agents, or with `isWhole` everything. */
  draw({ isWhole, paths, added }) {
    if (isWhole) this.#tree.arrange();
    else this.#tree.update(paths, { added });
  }

  /** The run has ended. */
  ended() {
    this.#tree.viewport.refit();
  }

  /** Updates the times, once a second. */
  tick() {
    this.#tree.tick();
  }

  count() {
    const statuses = this.#viewModel.rows().map((row) => row.status);
    this.#toolbar.show(statuses, this.#tree.counts);
  }

  show(path) {
    this.#tree.show(path);
  }

  focus() {
    this.#tree.focus();
  }

  /** Call when the tree was put into the page, moved in it, or resized. */
  settled() {
    this.#tree.viewport.restore();
  }

  /** Sets the height that code requests, in pixels; 0 for none. */
  resize(height) {
    this.#pane.given = height;
  }
}
