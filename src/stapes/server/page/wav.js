// PCM in WAV files: the header read, so that long files need not be decoded as a whole, and written.

/**
 * Where the samples of a WAV file are: {offset, bytes, channels, rate, bits, isFloat}; null when the
 * bytes (the file's first) are no WAV file of plain PCM.
 */
export function readHeader(bytes, fileSize) {
  const view = new DataView(bytes);
  const name = (at) => String.fromCharCode(...new Uint8Array(bytes, at, 4));
  if (view.byteLength < 44 || name(0) !== "RIFF" || name(8) !== "WAVE") return null;
  let format = null;
  for (let at = 12; at + 8 <= view.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    const start = at + 8;
    if (name(at) === "fmt " && start + 16 <= view.byteLength) format = readFormat(view, start, size);
    if (name(at) === "data") {
      return format && { ...format, offset: start, bytes: Math.min(size, fileSize - start) };
    }
    at = start + size + (size % 2);
  }
  return null;
}

function readFormat(view, start, size) {
  let kind = view.getUint16(start, true);
  const [channels, rate] = [view.getUint16(start + 2, true), view.getUint32(start + 4, true)];
  const bits = view.getUint16(start + 14, true);
  const isExtended = kind === 0xfffe && size >= 26 && start + 26 <= view.byteLength;
  if (isExtended) kind = view.getUint16(start + 24, true);
  const isKnown = (kind === 1 && [8, 16, 24, 32].includes(bits)) || (kind === 3 && bits === 32);
  return isKnown && channels && rate ? { channels, rate, bits, isFloat: kind === 3 } : null;
}

/** Samples from -1 to 1 of one channel of interleaved frames. */
export function* samplesOf(view, { channels, bits, isFloat }) {
  const step = (channels * bits) / 8;
  for (let at = 0; at + step <= view.byteLength; at += step) {
    if (isFloat) yield view.getFloat32(at, true);
    else if (bits === 16) yield view.getInt16(at, true) / 32768;
    else if (bits === 24) yield (view.getUint8(at) | (view.getInt16(at + 1, true) << 8)) / 8388608;
    else if (bits === 32) yield view.getInt32(at, true) / 2147483648;
    else yield (view.getUint8(at) - 128) / 128;
  }
}

/** A WAV file of 16-bit blocks of one channel. */
export function wavFile(blocks, rate, name) {
  const size = blocks.reduce((sum, block) => sum + block.byteLength, 0);
  const view = new DataView(new ArrayBuffer(44));
  const text = (at, value) => [...value].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + size, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, size, true);
  return new File([view, ...blocks], name, { type: "audio/wav" });
}
