// The microphone, and what is heard while somebody speaks.

import { LiveConnection } from "./live.js";
import { Microphone } from "./microphone.js";
import { Peaks } from "./peaks.js";
import { clock, joinTexts } from "./times.js";
import { wavFile } from "./wav.js";
import { Problem } from "./server.js";

const MOST_WAITING_S = 30; // sound that has not left the browser: the connection is too slow
const LAG_SHOWN_S = 1.5;

/** The local time as file names may hold it: 2031-02-03 14.05. */
function fileTime(date) {
  const two = (value) => String(value).padStart(2, "0");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day} ${two(date.getHours())}.${two(date.getMinutes())}`;
}

export class LiveJob {
  #work;
  #key;
  #choices;
  #microphone = null;
  #connection = null;
  #blocks = [];
  #held = []; // until the server is ready
  #peaks = new Peaks();
  #settled = "";
  #lag = 0;
  #notices = [];
  #language = null;
  #isStopped = false;
  #fail = () => {};
  #isWhole = false;

  /** The recording, once it has ended: a WAV file. */
  file = null;

  constructor(work, key, choices) {
    this.#work = work;
    this.#key = key;
    this.#choices = choices;
  }

  /** Resolves when it has been stopped and all is said; rejects with a Problem. */
  async run() {
    this.#microphone = await Microphone.open();
    const name = `Recording ${fileTime(new Date())}`;
    this.#work.begin({ name, title: "Listening", model: this.#choices.model, state: "live" });
    try {
      await this.#listen();
      this.#isWhole = true;
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    } finally {
      this.#microphone.close();
      this.#connection.close();
      await this.#keep();
    }
  }

  /** The user has said all. */
  stop() {
    this.#isStopped = true;
    this.#microphone?.stop();
    this.#tell();
  }

  /** Do not wait for the rest. */
  cancel() {
    this.#fail(new DOMException("cancelled", "AbortError"));
  }

  tellLoad() {}

  #listen() {
    return new Promise((resolve, reject) => {
      this.#fail = reject;
      const { model, language, context } = this.#choices;
      const sampleRate = this.#microphone.sampleRate;
      this.#connection = new LiveConnection(
        { key: this.#key, model, language, context, sampleRate },
        {
          onReady: () => this.#begin(),
          onHeard: (event) => this.#heard(event),
          onEnd: (problem) => (problem ? reject(problem) : resolve()),
        },
      );
      this.#microphone.listen((samples) => {
        if (samples) this.#take(samples);
        else if (this.#held) this.#held.push(null);
        else this.#connection.finish();
      });
    });
  }

  /** The server is ready: it gets what was said in the meantime. */
  #begin() {
    for (const block of this.#held) {
      if (block) this.#connection.send(block);
      else this.#connection.finish();
    }
    this.#held = null;
  }

  #take(samples) {
    this.#blocks.push(samples);
    this.#peaks.add(Float32Array.from(samples, (value) => value / 32768), this.#microphone.sampleRate);
    if (this.#held) this.#held.push(samples);
    else this.#connection.send(samples);
    if (this.#connection.waitingBytes > MOST_WAITING_S * 2 * this.#microphone.sampleRate) {
      this.#fail(new Problem(`The connection is too slow: ${MOST_WAITING_S} s of sound have not been sent.`));
    }
    this.#work.hearLive(this.#peaks);
    this.#tell();
  }

  #heard({ type, text, start_s, end_s, language, lag_s = 0, words = [] }) {
    this.#work.transcript.nothing("");
    this.#lag = lag_s;
    this.#language = language ?? this.#language;
    if (type === "partial") this.#work.transcript.partial(this.#settled, text);
    if (type === "committed") {
      this.#settled += text;
      this.#work.transcript.partial(this.#settled, "");
    }
    if (type === "notice") this.#work.warn((this.#notices = [...this.#notices, text]));
    if (type !== "final") return;
    this.#settled = "";
    this.#work.transcript.partial("", "");
    if (!text.trim()) return;
    const segment = { id: this.#work.segments.length, start: start_s, end: end_s, text: text.trim(), language };
    const timed = words.map((word) => ({ word: word.text, start: word.start_s, end: word.end_s }));
    this.#work.add(segment, timed);
  }

  #tell() {
    const behind = this.#lag > LAG_SHOWN_S ? `${this.#lag.toFixed(0)} s behind` : "";
    const waits = this.#held ? "waiting for the server" : "";
    const state = this.#isStopped ? "waiting for the last words" : waits;
    this.#work.facts(clock(this.#peaks.duration), this.#language, behind, state);
  }

  /** The sound and the text stay, also when something went wrong. */
  async #keep() {
    const { segments, words } = this.#work;
    if (!this.#blocks.length) return this.#work.leave();
    const transcript = {
      task: "transcribe",
      language: this.#language?.toLowerCase() ?? null,
      duration: Math.max(this.#peaks.duration, segments.at(-1)?.end ?? 0),
      text: joinTexts(segments.map(({ text }) => text)),
      segments,
      ...(words.length && { words }),
      ...(this.#notices.length && { warnings: this.#notices }),
    };
    this.#work.waveform.settle();
    this.file = wavFile(this.#blocks, this.#microphone.sampleRate, `${this.#work.name}.wav`);
    await this.#work.hear(this.file);
    this.#work.finish(transcript, { isWhole: this.#isWhole });
  }
}
