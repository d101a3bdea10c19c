// How loud a recording is over time, made in short steps so that long files do not stop the page.

import { breathe } from "./dom.js";
import { readHeader, samplesOf } from "./wav.js";

export const PEAKS_PER_S = 50;
const STEP_BYTES = 1 << 19;
const STEP_SAMPLES = 1 << 19;
const DECODING_RATE = 8000; // enough for a picture, and a sixth of the memory of 48 kHz
const MOST_DECODED_S = 2 * 3600; // beyond that decoding as a whole takes gigabytes
const HEADER_BYTES = 1 << 16;

/** The largest magnitude of each fiftieth of a second, 0 to 255; it grows. */
export class Peaks {
  values = new Uint8Array(1024);
  length = 0;
  #due = 0;
  #top = 0;

  /** Samples from -1 to 1 at a rate in Hz. */
  add(samples, rate) {
    const perPeak = rate / PEAKS_PER_S;
    for (const sample of samples) {
      const size = sample < 0 ? -sample : sample;
      if (size > this.#top) this.#top = size;
      this.#due += 1;
      if (this.#due >= perPeak) {
        this.#push(this.#top);
        this.#due -= perPeak;
        this.#top = 0;
      }
    }
  }

  get duration() {
    return this.length / PEAKS_PER_S;
  }

  /** The largest, from 0 to 1, between two times; 0 where nothing is known. */
  between(start, end) {
    const first = Math.max(0, Math.floor(start * PEAKS_PER_S));
    const last = Math.min(this.length, Math.max(first + 1, Math.ceil(end * PEAKS_PER_S)));
    let top = 0;
    for (let i = first; i < last; i += 1) if (this.values[i] > top) top = this.values[i];
    return top / 255;
  }

  #push(top) {
    if (this.length === this.values.length) {
      const grown = new Uint8Array(this.length * 2);
      grown.set(this.values);
      this.values = grown;
    }
    this.values[this.length] = Math.min(255, Math.round(top * 255));
    this.length += 1;
  }
}

/**
 * Peaks of a file; onGrowth() after each step. Resolves to false where the browser cannot decode it,
 * or it would take too much memory. `seconds` is the duration if it is known.
 */
export async function readPeaks(file, peaks, { seconds, onGrowth, signal }) {
  const header = readHeader(await file.slice(0, HEADER_BYTES).arrayBuffer(), file.size);
  if (header) await readWav(file, header, peaks, onGrowth, signal);
  else if (!seconds || seconds > MOST_DECODED_S) return false;
  else return readDecoded(file, peaks, onGrowth, signal);
  return true;
}

async function readWav(file, header, peaks, onGrowth, signal) {
  const frame = (header.channels * header.bits) / 8;
  const step = STEP_BYTES - (STEP_BYTES % frame);
  const end = header.offset + header.bytes;
  for (let at = header.offset; at < end && !signal.aborted; at += step) {
    const part = await file.slice(at, Math.min(at + step, end)).arrayBuffer();
    peaks.add(samplesOf(new DataView(part), header), header.rate);
    onGrowth();
    await breathe();
  }
}

async function readDecoded(file, peaks, onGrowth, signal) {
  let sound;
  try {
    const context = new OfflineAudioContext(1, 1, DECODING_RATE);
    sound = await context.decodeAudioData(await file.arrayBuffer());
  } catch {
    return false;
  }
  const samples = sound.getChannelData(0);
  for (let at = 0; at < samples.length && !signal.aborted; at += STEP_SAMPLES) {
    peaks.add(samples.subarray(at, at + STEP_SAMPLES), sound.sampleRate);
    onGrowth();
    await breathe();
  }
  return true;
}
