// The transcript on the page: segments with their times, words that play when they are clicked.

import { byId, make, show } from "./dom.js";
import { clock, lastStarted } from "./times.js";

const NEAR_END = 120; // pixels

export class TranscriptView {
  #list = byId("segments");
  #partial = byId("partial");
  #segments = []; // {start, end, parts, item, button, words: [{start, end, element}], chosen}
  #current = null;
  #spoken = null;
  #onPlay;

  /** onPlay(seconds): somebody chose a segment or word. */
  constructor(onPlay) {
    this.#onPlay = onPlay;
    this.#list.addEventListener("click", (event) => this.#clicked(event));
    this.#list.addEventListener("keydown", (event) => this.#pressed(event));
  }

  clear() {
    this.#segments = [];
    this.#current = this.#spoken = null;
    this.#list.replaceChildren();
    this.partial("", "");
    this.nothing("");
  }

  /** A segment {start, end, text, parts}; they come in order. */
  add(segment) {
    this.#keepingTheEnd(() => this.#append(segment));
  }

  #append(segment) {
    const button = make("button", { type: "button", className: "time" }, clock(segment.start));
    button.tabIndex = this.#segments.length ? -1 : 0; // one stop for Tab; arrows go on from there
    const words = [];
    const text = make("span", { className: "text", dir: "auto" });
    for (const part of segment.parts) {
      if (part.start === undefined) {
        text.append(part.text);
        continue;
      }
      const element = make("span", { className: "word" }, part.text);
      text.append(element);
      words.push({ start: part.start, end: part.end, element });
    }
    const item = make("li", {}, button, text);
    const row = { ...segment, item, button, words, chosen: -1 };
    this.#segments.push(row);
    this.#label(row);
    this.#list.append(item);
  }

  /** What is heard now: settled text, and text that may still change. */
  partial(settled, open) {
    this.#keepingTheEnd(() => {
      this.#partial.replaceChildren(...(settled || open ? [make("b", {}, settled), open] : []));
    });
  }

  /** While somebody speaks, the newest text stays in sight of those who read the end. */
  #keepingTheEnd(change) {
    const page = document.documentElement;
    const isAtEnd = page.scrollHeight - scrollY - innerHeight < NEAR_END;
    change();
    if (isAtEnd && document.body.dataset.state === "live") scrollTo(0, page.scrollHeight);
  }

  /** A sentence instead of text. */
  nothing(sentence) {
    byId("nothing").textContent = sentence;
    show(Boolean(sentence), byId("nothing"));
  }

  /** Mark what is spoken at a time; while it plays, keep it in sight. */
  at(seconds, isPlaying) {
    const found = this.#segments[lastStarted(this.#segments, seconds)];
    const row = found && seconds < found.end && (seconds > 0 || isPlaying) ? found : null;
    if (row !== this.#current) {
      this.#current?.item.classList.remove("current");
      row?.item.classList.add("current");
      this.#current = row;
      if (row && isPlaying) keepInSight(row.item);
    }
    const word = isPlaying && row ? row.words[lastStarted(row.words, seconds)] : null;
    const element = word && seconds < word.end + 0.05 ? word.element : null;
    if (element !== this.#spoken) {
      this.#spoken?.classList.remove("spoken");
      element?.classList.add("spoken");
      this.#spoken = element;
    }
  }

  #clicked(event) {
    const row = this.#segments.find(({ item }) => item.contains(event.target));
    if (!row) return;
    const word = row.words.find(({ element }) => element === event.target);
    if (word) this.#onPlay(word.start);
    else if (event.target === row.button) this.#onPlay(row.words[row.chosen]?.start ?? row.start);
  }

  #pressed(event) {
    const at = this.#segments.findIndex(({ button }) => button === event.target);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const row = this.#segments[at];
    const last = this.#segments.length - 1;
    const moves = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: last };
    if (event.key in moves) this.#focus(row, this.#segments[Math.max(0, Math.min(last, moves[event.key]))]);
    else if (event.key === "ArrowRight") this.#choose(row, Math.min(row.chosen + 1, row.words.length - 1));
    else if (event.key === "ArrowLeft") this.#choose(row, Math.max(row.chosen - 1, -1));
    else return;
    event.preventDefault();
  }

  #focus(from, to) {
    this.#choose(from, -1);
    from.button.tabIndex = -1;
    to.button.tabIndex = 0;
    to.button.focus();
  }

  #choose(row, index) {
    row.words[row.chosen]?.element.classList.remove("chosen");
    row.chosen = index;
    row.words[index]?.element.classList.add("chosen");
    this.#label(row);
  }

  #label(row) {
    const word = row.words[row.chosen];
    const from = word ? `“${word.element.textContent}” at ${clock(word.start)}` : "here";
    row.button.setAttribute("aria-label", `${clock(row.start)}, play from ${from}`);
  }
}

function keepInSight(item) {
  const box = item.getBoundingClientRect();
  const top = byId("player").getBoundingClientRect().bottom;
  if (box.top < top || box.bottom > innerHeight - 16) {
    scrollBy({ top: box.top - top - 24, behavior: "smooth" });
  }
}
