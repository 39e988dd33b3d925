// Notifies the user when a run in the background asks or ends while its view is out of sight: by a
// mark before the page's title until the view is visible, and by a notification of JupyterLab if
// the page exposes the application (`--LabApp.expose_app_in_browser=True`). No model's text is shown.

const ANY_MARK = /^● [^–]* – /;

export class Notifier {
  #isInView = true;
  #mark = "";
  // JupyterLab sets the title whenever it has saved its layout: then this puts the mark back.
  #keeper = new MutationObserver(() => this.#put());

  /** `element` is the view's; `signal` aborts when the view closes. */
  constructor(element, signal) {
    const watcher = new IntersectionObserver((entries) => {
      this.#isInView = entries.at(-1).isIntersecting;
      this.#look();
    });
    watcher.observe(element);
    document.addEventListener("visibilitychange", () => this.#look(), { signal });
    signal.addEventListener("abort", () => {
      watcher.disconnect();
      this.#clear();
    });
  }

  /** Notifies the user in a few words, unless the view is visible. */
  tell(words) {
    if (this.#isSeen) return;
    this.#mark = `● ${words} – `;
    document.title = document.title.replace(ANY_MARK, ""); // another panel's, or an older one
    this.#put();
    this.#keeper.observe(document.head, { childList: true, subtree: true, characterData: true });
    const options = { message: `A run in the background: ${words}`, type: "info" };
    const { commands } = globalThis.jupyterapp ?? {};
    if (commands?.hasCommand?.("apputils:notify")) {
      commands.execute("apputils:notify", { ...options, options: { autoClose: false } });
    }
  }

  get #isSeen() {
    return this.#isInView && !document.hidden;
  }

  #look() {
    if (this.#isSeen) this.#clear();
  }

  #put() {
    if (!ANY_MARK.test(document.title)) document.title = this.#mark + document.title;
  }

  #clear() {
    this.#keeper.disconnect();
    if (this.#mark && document.title.startsWith(this.#mark)) {
      document.title = document.title.slice(this.#mark.length);
    }
    this.#mark = "";
  }
}
