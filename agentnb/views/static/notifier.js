// Gives notice of a run that nobody waits for, when it asks or ends while its view is out of sight: a
// mark before the page's title, until the view is seen, and JupyterLab's own notification where the page
// gives access to the application (`--LabApp.expose_app_in_browser=True`). No word of a model is in it.

const ANY_MARK = /^● [^–]* – /;

export class Notifier {
  #isInView = true;
  #mark = "";
  // JupyterLab sets the title again whenever it has saved its layout: the mark is put back then.
  #keeper = new MutationObserver(() => this.#put());

  /** `element` is the view; `signal` ends it. */
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

  /** Gives notice in a few words, unless the view is in sight. */
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
