// The picture of a recording: its loudness, and below it the segments and words at their times.

import { clock, lastStarted } from "./times.js";

const BAR = 3; // CSS pixels of a bar and the gap behind it
const LANE = 28; // height of the segments' lane
const RULER = 18; // height of the times above
const SPANS = [5, 10, 15, 30, 60, 120, 300, 900, 3600]; // seconds that are shown at once
const WHOLE_UP_TO = 60; // seconds of a recording that is shown whole at first
const PAGE = 30; // seconds of a longer one
const LIVE_SPAN = 20;
const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600];
const TICK_GAP = 80;
const WORD_INSET = 5; // pixels between the place of a word's start and its text
const LOUDNESS = 0.7; // quiet speech shall be seen: between linear and the ear's scale
const COLOURS = ["accent", "on-accent", "wave", "wash", "sunken", "text", "quiet", "line"];

export class Waveform {
  duration = 0;
  peaks = null;
  segments = [];
  isLive = false;
  #time = 0;
  #start = 0;
  #span = null; // what the user has chosen
  #isDue = false;

  /** onPick(seconds): somebody clicked there. */
  constructor(canvas, onPick) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    canvas.addEventListener("click", (event) => {
      if (this.duration && !this.isLive) onPick(this.#picked(event.offsetX, event.offsetY));
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** A new recording. */
  reset({ isLive = false } = {}) {
    Object.assign(this, { duration: 0, peaks: null, segments: [], isLive });
    this.#time = this.#start = 0;
    this.#span = null;
    this.draw();
  }

  /** A live recording has ended: it is a recording like others, its segments stay. */
  settle() {
    const { segments } = this;
    this.reset();
    this.segments = segments;
  }

  set time(seconds) {
    this.#time = seconds;
    if (!this.isLive) this.#follow();
    this.draw();
  }

  /** Show more (1) or less (-1) of the recording at once. */
  zoom(direction) {
    const shown = this.#shown;
    const next =
      direction > 0 ? SPANS.find((span) => span > shown + 0.01) : SPANS.findLast((span) => span < shown - 0.01);
    this.#span = next ?? (direction > 0 ? Infinity : SPANS[0]);
    this.#start = this.#time - this.#shown / 2;
    this.#bound();
    this.draw();
  }

  /** Draw before the next frame. */
  draw() {
    if (this.#isDue) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      this.#paint();
    });
  }

  get #shown() {
    if (this.isLive) return LIVE_SPAN;
    const span = this.#span ?? (this.duration > WHOLE_UP_TO ? PAGE : WHOLE_UP_TO);
    return Math.max(0.5, Math.min(span, this.duration || span));
  }

  /** Turn the page when the time leaves what is shown. */
  #follow() {
    const at = (this.#time - this.#start) / this.#shown;
    if (at < 0 || at > 0.95) this.#start = this.#time - 0.1 * this.#shown;
    this.#bound();
  }

  #bound() {
    this.#start = Math.max(0, Math.min(this.#start, this.duration - this.#shown));
  }

  #picked(x, y) {
    const seconds = this.#start + (x / this.canvas.clientWidth) * this.#shown;
    const segment = this.segments[lastStarted(this.segments, seconds)];
    const isOnLane = y > this.canvas.clientHeight - LANE && segment && seconds <= segment.end;
    if (!isOnLane) return seconds;
    const words = this.#showsWords(segment) ? segment.parts.filter((part) => part.start !== undefined) : [];
    return words[lastStarted(words, seconds)]?.start ?? segment.start;
  }

  #paint() {
    const { canvas, context } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const style = getComputedStyle(canvas);
    this.colours = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.font = style.fontFamily;
    if (this.isLive) this.#start = Math.max(0, this.#time - LIVE_SPAN);
    this.#paintRuler(width);
    this.#paintBars(width, RULER, height - LANE - 6);
    this.#paintLane(width, height - LANE, LANE);
    if (!this.isLive) this.#paintTime(height);
  }

  #x(seconds) {
    return ((seconds - this.#start) / this.#shown) * this.canvas.clientWidth;
  }

  #paintRuler(width) {
    const { context } = this;
    const least = (TICK_GAP / width) * this.#shown;
    const step = TICKS.find((tick) => tick >= least) ?? TICKS.at(-1);
    context.font = `11px ${this.font}`;
    context.fillStyle = this.colours.quiet;
    context.textBaseline = "top";
    for (let at = Math.ceil(this.#start / step) * step; at < this.#start + this.#shown; at += step) {
      const x = this.#x(at);
      if (x < width - 30) context.fillText(clock(at), x + (x < 1 ? 0 : 1), 0);
    }
  }

  #paintBars(width, top, bottom) {
    const { context } = this;
    const middle = (top + bottom) / 2;
    const most = (bottom - top) / 2;
    const seconds = (BAR / width) * this.#shown;
    // Bars belong to times, not to pixels: they do not flicker while the picture moves.
    const first = Math.floor(this.#start / seconds);
    for (let bar = first; bar * seconds < this.#start + this.#shown; bar += 1) {
      const at = bar * seconds;
      if (this.isLive ? at >= this.#time : this.duration && at >= this.duration) break;
      const loud = this.peaks ? this.peaks.between(at, at + seconds) : 0;
      const size = Math.max(1, loud ** LOUDNESS * most);
      context.fillStyle = at < this.#time ? this.colours.accent : this.colours.wave;
      context.beginPath();
      context.roundRect(this.#x(at), middle - size, BAR - 1, 2 * size, 1);
      context.fill();
    }
  }

  #paintLane(width, top, height) {
    const { context } = this;
    context.font = `13px ${this.font}`;
    context.textBaseline = "middle";
    const first = Math.max(0, lastStarted(this.segments, this.#start));
    for (let i = first; i < this.segments.length && this.segments[i].start < this.#start + this.#shown; i += 1) {
      const segment = this.segments[i];
      const [left, right] = [Math.max(0, this.#x(segment.start)), Math.min(width, this.#x(segment.end))];
      if (right <= left) continue;
      const isCurrent = this.#time >= segment.start && this.#time < segment.end;
      context.save();
      context.beginPath();
      context.roundRect(left, top, Math.max(2, right - left - 1), height, 7);
      context.fillStyle = isCurrent && !this.isLive ? this.colours.wash : this.colours.sunken;
      context.fill();
      context.clip();
      context.fillStyle = this.colours.text;
      if (this.#showsWords(segment)) this.#paintWords(segment, top + height / 2);
      else this.#paintShort(segment.text, left + 8, right - left - 16, top + height / 2);
      context.restore();
    }
  }

  #paintWords(segment, y) {
    for (const { text, start } of segment.parts) {
      if (start !== undefined) this.context.fillText(text, this.#x(start) + WORD_INSET, y);
    }
  }

  #paintShort(text, x, room, y) {
    if (room < 12) return;
    let shown = text.slice(0, Math.ceil(room / 4));
    while (shown && this.context.measureText(shown + (shown === text ? "" : "…")).width > room) {
      shown = shown.slice(0, -1);
    }
    if (shown) this.context.fillText(shown === text ? text : `${shown.trimEnd()}…`, x, y);
  }

  /** Whether each word has room at its time. */
  #showsWords(segment) {
    const perSecond = this.canvas.clientWidth / this.#shown;
    if (perSecond < 20) return false;
    this.context.font = `13px ${this.font}`;
    const words = segment.parts.filter((part) => part.start !== undefined);
    return words.every(({ text, start }, i) => {
      const room = ((words[i + 1]?.start ?? segment.end) - start) * perSecond;
      return this.context.measureText(text).width + 2 * WORD_INSET <= room;
    });
  }

  #paintTime(height) {
    const x = this.#x(this.#time);
    this.context.fillStyle = this.colours.text;
    this.context.fillRect(Math.min(Math.max(0, x - 1), this.canvas.clientWidth - 2), RULER - 4, 2, height - RULER + 4);
  }
}
