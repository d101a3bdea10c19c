// Plays the recording that the user has chosen, and tells where it is.

import { byId, show } from "./dom.js";
import { clock, spokenClock } from "./times.js";

export class Player {
  duration = 0;
  canPlay = false;
  #audio = byId("audio");
  #address = null;
  #onTime;

  /** onTime(seconds, whether it plays): often while it plays. */
  constructor(onTime) {
    this.#onTime = onTime;
    this.button = byId("play");
    this.seek = byId("seek");
    this.button.addEventListener("click", () => this.toggle());
    this.seek.addEventListener("input", () => this.goTo(Number(this.seek.value)));
    for (const name of ["play", "pause", "ended", "seeked"]) {
      this.#audio.addEventListener(name, () => this.#changed());
    }
    this.#tell();
  }

  /** Take a file; resolves to its duration in seconds, 0 where the browser cannot play it. */
  load(file) {
    this.unload();
    this.#address = URL.createObjectURL(file);
    return new Promise((resolve) => {
      const settled = (seconds) => {
        this.#audio.onloadedmetadata = this.#audio.onerror = null;
        this.canPlay = seconds > 0;
        resolve(Number.isFinite(seconds) ? seconds : 0);
      };
      this.#audio.onloadedmetadata = () => settled(this.#audio.duration);
      this.#audio.onerror = () => settled(0);
      this.#audio.src = this.#address;
    });
  }

  unload() {
    this.#audio.pause();
    this.#audio.removeAttribute("src");
    this.#audio.onloadedmetadata = this.#audio.onerror = null;
    if (this.#address) URL.revokeObjectURL(this.#address);
    this.#address = null;
    this.canPlay = false;
    this.setDuration(0);
  }

  setDuration(seconds) {
    this.duration = seconds;
    this.seek.max = String(Math.max(seconds, 0.1));
    this.seek.step = seconds > 600 ? "1" : "0.1";
    this.button.disabled = this.seek.disabled = !this.canPlay;
    this.#tell();
  }

  /** Play from a time. */
  playFrom(seconds) {
    if (!this.canPlay) return;
    this.goTo(seconds);
    this.#audio.play().catch(() => {}); // paused again before it began
  }

  goTo(seconds) {
    if (!this.canPlay) return;
    this.#audio.currentTime = Math.max(0, Math.min(seconds, this.duration));
    this.#tell();
  }

  toggle() {
    if (this.#audio.paused) this.playFrom(this.#audio.ended ? 0 : this.#audio.currentTime);
    else this.#audio.pause();
  }

  get isPlaying() {
    return !this.#audio.paused;
  }

  #changed() {
    this.button.classList.toggle("playing", this.isPlaying);
    this.button.setAttribute("aria-label", this.isPlaying ? "Pause" : "Play");
    this.#tell();
    if (this.isPlaying) requestAnimationFrame(() => this.#step());
  }

  #step() {
    this.#tell();
    if (this.isPlaying) requestAnimationFrame(() => this.#step());
  }

  #tell() {
    const seconds = this.#audio.currentTime || 0;
    this.seek.value = String(seconds);
    const position = `${spokenClock(seconds)} of ${spokenClock(this.duration)}`;
    if (this.seek.getAttribute("aria-valuetext") !== position) {
      this.seek.setAttribute("aria-valuetext", position);
    }
    byId("clock").textContent = `${clock(seconds)} / ${clock(this.duration)}`;
    this.#onTime(seconds, this.isPlaying);
  }
}

/** Say below the player what is missing, or nothing. */
export function note(text) {
  byId("sound-note").textContent = text;
  show(Boolean(text), byId("sound-note"));
}
