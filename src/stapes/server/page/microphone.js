// The microphone as blocks of 16-bit samples.

import { Problem } from "./server.js";

const RATE = 16000; // what the models hear

const REFUSALS = {
  NotAllowedError: "The browser does not let this page use the microphone. Allow it in the address bar and try again.",
  NotFoundError: "No microphone was found.",
  NotReadableError: "The microphone is in use by another program.",
};

export class Microphone {
  #stream;
  #context;
  #node;

  /** Ask the user; Problem when there is none, or they refuse. */
  static async open() {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new Problem("Browsers give the microphone only to pages on this machine (localhost) or with https.");
    }
    const microphone = new Microphone();
    try {
      microphone.#stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
      await microphone.#connect();
    } catch (error) {
      microphone.close();
      throw new Problem(REFUSALS[error.name] ?? `The microphone cannot be used: ${error.message}`);
    }
    return microphone;
  }

  /** Hz of the samples: 16000 where the browser resamples, else the device's. */
  get sampleRate() {
    return this.#context.sampleRate;
  }

  /** Hand on what is heard, as Int16Array; null at the end. */
  listen(onSamples) {
    this.#node.port.onmessage = ({ data }) => onSamples(data);
  }

  /** The end: the last samples still come. */
  stop() {
    this.#node.port.postMessage("end");
    for (const track of this.#stream.getTracks()) track.stop();
  }

  close() {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    if (this.#context?.state !== "closed") this.#context?.close();
  }

  async #connect() {
    try {
      await this.#build(new AudioContext({ sampleRate: RATE }));
    } catch (error) {
      if (error.name !== "NotSupportedError") throw error;
      await this.#build(new AudioContext()); // this browser does not resample; the server does
    }
    await this.#context.resume();
  }

  async #build(context) {
    await this.#context?.close();
    this.#context = context;
    await context.audioWorklet.addModule("/static/capture-worklet.js");
    const source = context.createMediaStreamSource(this.#stream);
    this.#node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    source.connect(this.#node);
  }
}
