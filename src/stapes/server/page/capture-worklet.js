// Runs beside the microphone: its samples as 16-bit blocks of 100 ms.

const BLOCKS_PER_S = 10;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Int16Array(Math.round(sampleRate / BLOCKS_PER_S));
    this.filled = 0;
    this.isOpen = true;
    this.port.onmessage = () => this.end();
  }

  process([channels]) {
    const samples = channels?.[0];
    for (let i = 0; samples && i < samples.length; i += 1) {
      const value = Math.max(-1, Math.min(1, samples[i]));
      this.block[this.filled] = Math.round(value * 32767);
      this.filled += 1;
      if (this.filled === this.block.length) this.flush();
    }
    return this.isOpen;
  }

  flush() {
    if (!this.filled) return;
    this.port.postMessage(this.block.slice(0, this.filled));
    this.filled = 0;
  }

  end() {
    this.flush();
    this.isOpen = false;
    this.port.postMessage(null); // the last message
  }
}

registerProcessor("capture", Capture);
