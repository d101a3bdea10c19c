// A recording that is uploaded, and its transcript as it comes.

import { clock, joinTexts } from "./times.js";

const percent = (fraction) => `${Math.floor(fraction * 100)} %`;

export class FileJob {
  #work;
  #server;
  #file;
  #choices;
  #abort = new AbortController();
  #uploaded = 0;

  constructor(work, server, file, choices) {
    this.#work = work;
    this.#server = server;
    this.#file = file;
    this.#choices = choices;
  }

  /** Resolves when the transcript is complete or cancelled; rejects with a Problem. */
  async run() {
    const work = this.#work;
    const { model } = this.#choices;
    work.begin({ name: this.#file.name, title: this.#file.name, model, state: "working" });
    work.progress(0, "Uploading");
    work.hear(this.#file); // beside the upload
    try {
      const done = await this.#server.transcribe(this.#file, this.#fields(), {
        onUpload: (fraction) => this.#onUpload(fraction),
        onEvent: (event) => this.#onEvent(event),
        signal: this.#abort.signal,
      });
      const { type, ...transcript } = done;
      work.finish(transcript);
    } catch (error) {
      this.#keepWhatCame();
      if (error.name !== "AbortError") throw error;
    }
  }

  cancel() {
    this.#abort.abort();
  }

  /** The server's queue may have changed. */
  tellLoad({ waiting }) {
    if (this.#uploaded < 1 || this.#work.segments.length) return;
    this.#work.progress(null, waiting ? "Waiting for a place in the queue" : "Listening to the recording");
  }

  #fields() {
    const { model, language, context, hasWords } = this.#choices;
    const fields = [
      ["model", model],
      ["response_format", "verbose_json"],
      ["stream", "true"],
      ["timestamp_granularities[]", "segment"],
    ];
    if (hasWords) fields.push(["timestamp_granularities[]", "word"]);
    if (language) fields.push(["language", language]);
    if (context) fields.push(["prompt", context]);
    return fields;
  }

  #onUpload(fraction) {
    this.#uploaded = fraction;
    if (fraction < 1) this.#work.progress(fraction, `Uploading, ${percent(fraction)}`);
    else this.#work.progress(null, "Listening to the recording");
  }

  #onEvent(event) {
    if (event.type !== "transcript.text.segment") return;
    const { type, words = [], ...segment } = event;
    const whole = this.#work.player.canPlay ? this.#work.player.duration : 0;
    this.#work.add(segment, words);
    const fraction = whole ? Math.min(1, segment.end / whole) : null;
    const of = whole ? ` of ${clock(whole)}` : "";
    this.#work.progress(fraction, `Transcribed ${clock(segment.end)}${of}`);
  }

  /** Text that came before the end is not thrown away. */
  #keepWhatCame() {
    const { segments, words } = this.#work;
    if (!segments.length) {
      this.#work.leave();
      return;
    }
    const transcript = {
      task: "transcribe",
      language: segments[0].language?.toLowerCase() ?? null,
      duration: segments.at(-1).end,
      text: joinTexts(segments.map(({ text }) => text)),
      segments,
      ...(words.length && { words }),
    };
    this.#work.finish(transcript, { isWhole: false });
  }
}
