// Times as people read them, and when each word of a segment is spoken.

const parts = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds));
  return [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
};

/** 0:03, 12:40, 1:02:03. */
export function clock(seconds) {
  const [hours, minutes, rest] = parts(seconds);
  const two = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** The same for ears: "1 hour 2 minutes 3 seconds". */
export function spokenClock(seconds) {
  const names = ["hour", "minute", "second"];
  const told = parts(seconds)
    .map((value, i) => (value ? `${value} ${names[i]}${value === 1 ? "" : "s"}` : ""))
    .filter(Boolean);
  return told.join(" ") || "0 seconds";
}

/**
 * A segment's text in parts: {text, start, end} of words, {text} of what is between them.
 * With the server's words their times are used, if they spell the text; else each word gets a share
 * of the segment's time by its length, which is an estimate.
 */
export function timedParts(segment, words = []) {
  return exactParts(segment.text, words) ?? estimatedParts(segment);
}

function exactParts(text, words) {
  if (!words.length) return null;
  const found = [];
  let at = 0;
  for (const { word, start, end } of words) {
    const spelled = word.trim();
    const next = text.indexOf(spelled, at);
    if (next < 0 || /[\p{L}\p{N}]/u.test(text.slice(at, next))) return null;
    if (next > at) found.push({ text: text.slice(at, next) });
    found.push({ text: spelled, start, end });
    at = next + spelled.length;
  }
  if (/[\p{L}\p{N}]/u.test(text.slice(at))) return null;
  if (at < text.length) found.push({ text: text.slice(at) });
  return found;
}

function estimatedParts({ text, start, end }) {
  const at = (index) => start + ((end - start) * index) / (text.length || 1);
  return wordRanges(text).map(([first, last, isWord]) => {
    const part = { text: text.slice(first, last) };
    return isWord ? { ...part, start: at(first), end: at(last) } : part;
  });
}

/** [first, last + 1, whether it is a word]; scripts without spaces are cut by dictionary. */
function wordRanges(text) {
  const ranges = [];
  for (const match of text.matchAll(/\s+|\S+/gu)) {
    const first = match.index;
    if (/\s/u.test(match[0])) ranges.push([first, first + match[0].length, false]);
    else ranges.push(...unspaced(match[0]).map(([a, b]) => [first + a, first + b, true]));
  }
  return ranges;
}

const UNSPACED = /[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Thai}\p{scx=Lao}\p{scx=Khmr}]/u;

function unspaced(text) {
  if (!UNSPACED.test(text) || !Intl.Segmenter) return [[0, text.length]];
  const ranges = [];
  for (const part of new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)) {
    const range = [part.index, part.index + part.segment.length];
    if (!part.isWordLike && ranges.length) ranges.at(-1)[1] = range[1];
    else ranges.push(range);
  }
  return ranges;
}

/** Texts of consecutive segments as one, with spaces where the script has them. */
export function joinTexts(texts) {
  let joined = "";
  for (const text of texts.filter(Boolean)) {
    const tight = UNSPACED.test(joined.at(-1) ?? "") || UNSPACED.test(text[0]);
    joined += (joined && !tight ? " " : "") + text;
  }
  return joined;
}

/** The last entry of a list in order that starts at or before a time; -1 when none does. */
export function lastStarted(list, seconds) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].start <= seconds) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
