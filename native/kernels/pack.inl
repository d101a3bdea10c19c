// Packing matrices into tiles, and reading single rows back. Included by kernels.inl.

static bool pack_words(const float* const* rows, size_t outputs, size_t in, uint8_t* tile,
                       bool bf16) {
    bool finite = true;
    for (size_t k = 0; k < in; ++k) {
        for (size_t o = 0; o < kTile; ++o) {
            float value = o < outputs ? rows[o][k] : 0.0f;
            float stored = bf16 ? bf16_to_float(float_to_bf16(value)) : value;
            finite &= stored - stored == 0.0f;
            if (bf16)
                reinterpret_cast<uint16_t*>(tile)[k * kTile + o] = float_to_bf16(value);
            else
                reinterpret_cast<float*>(tile)[k * kTile + o] = value;
        }
    }
    return finite;
}

// Where input i of a q8 block stands for an output: [8 quads][16 outputs][4].
STAPES_INLINE size_t q8_index(size_t i, size_t output) {
    return i / 4 * 4 * kTile + output * 4 + i % 4;
}

// To the nearest whole number, halves away from zero.
STAPES_INLINE VF round_half_away(VF x) {
    VF magnitude = vf_abs(x), whole = vf_floor(magnitude);
    VF up = vf_add(whole, vf_set1(1.0f));
    VF rounded = vf_select_lt(vf_sub(magnitude, whole), vf_set1(0.5f), whole, up);
    return vf_select_lt(x, vf_zero(), vf_sub(vf_zero(), rounded), rounded);
}

// 32 inputs of one output -> int8 values held as int16, with the numbers of GGUF's Q8_0: scale =
// peak / 127 stored as f16, values rounded half away from zero with the unrounded scale. False when
// a value is not finite or the scale does not fit f16.
static bool quantize_weights(const float* x, int16_t* q, uint16_t* scale) {
    VF largest = vf_zero(), poison = vf_zero();
    for (int i = 0; i < kBlock; i += kLanes) {
        largest = vf_max(vf_abs(vf_load(x + i)), largest);  // passes over NaN
        poison = vf_fma(vf_load(x + i), vf_zero(), poison);
    }
    float unrounded = vf_hmax(largest) / 127.0f;
    *scale = float_to_f16(unrounded);
    // A scale that rounds to 0 makes a block of zeros.
    VF inverse = vf_set1(*scale ? 1.0f / unrounded : 0.0f);
    for (int i = 0; i < kBlock; i += kLanes)
        vf_store_i16(q + i, round_half_away(vf_mul(vf_load(x + i), inverse)));
    return vf_sum(poison) == 0.0f && (*scale & 0x7c00u) != 0x7c00u;
}

static bool pack_q8(const float* const* rows, size_t outputs, size_t in, uint8_t* tile) {
    bool finite = true;
    for (size_t b = 0; b < ceil_div(in, kBlock); ++b, tile += kQ8BlockBytes) {
        size_t n = in - b * kBlock < kBlock ? in - b * kBlock : kBlock;
        int8_t* q = reinterpret_cast<int8_t*>(tile + kTile * 2);
        for (size_t o = 0; o < kTile; ++o) {
            float x[kBlock] = {0};
            int16_t values[kBlock];
            uint16_t scale;
            if (o < outputs) memcpy(x, rows[o] + b * kBlock, n * sizeof(float));
            finite &= quantize_weights(x, values, &scale);
            memcpy(tile + o * 2, &scale, 2);
            for (size_t i = 0; i < kBlock; ++i) q[q8_index(i, o)] = int8_t(values[i]);
        }
    }
    return finite;
}

// The nibble, from 0 to 15, of a value in units of the scale.
STAPES_INLINE float q4_nearest(float x) {
    x += 8.5f;
    x = x < 0.0f ? 0.0f : x;
    return float(int(x < 15.0f ? x : 15.0f));
}

constexpr int kQ4Lanes = 8;  // sums of a block are taken over every eighth value, then in order

// The scale of a q4 block (GGUF's Q4_0) whose value of largest magnitude is `extreme`. For each of
// some steps s that value is put at -s; of these roundings the one is taken whose best scale leaves
// the least error, each value weighed by its square. Plain least squares, which gives up the largest
// weights for the many small ones, made a real model worse (docs/fidelity.md). A block that q4 holds
// exactly keeps its scale: the first step leaves no error.
static float q4_scale(const float* x, float extreme) {
    constexpr float kSteps[] = {8.0f, 7.6f, 7.2f, 6.8f, 8.4f};
    if (extreme < 1e-30f && extreme > -1e-30f) return 0.0f;
    const float unit = 1.0f / extreme;
    float y[kBlock], w[kBlock], best = -1.0f, chosen = 0.0f;
    for (int i = 0; i < kBlock; ++i) y[i] = x[i] * unit, w[i] = y[i] * y[i];
    for (float step : kSteps) {
        float xq[kQ4Lanes] = {0}, qq[kQ4Lanes] = {0};
        for (int i = 0; i < kBlock; i += kQ4Lanes) {
            for (int l = 0; l < kQ4Lanes; ++l) {
                float v = q4_nearest(y[i + l] * -step) - 8.0f;
                float wv = w[i + l] * v;
                xq[l] += wv * y[i + l];
                qq[l] += wv * v;
            }
        }
        for (int l = 1; l < kQ4Lanes; ++l) xq[0] += xq[l], qq[0] += qq[l];
        float gain = qq[0] > 0.0f ? xq[0] * xq[0] / qq[0] : 0.0f;
        if (gain > best) best = gain, chosen = qq[0] > 0.0f ? extreme * (xq[0] / qq[0]) : 0.0f;
    }
    return chosen;
}

static bool quantize_nibbles(const float* x, uint8_t* q, uint16_t* scale) {
    float extreme = 0.0f, poison = 0.0f;
    for (int i = 0; i < kBlock; ++i) {
        float magnitude = x[i] < 0 ? -x[i] : x[i], most = extreme < 0 ? -extreme : extreme;
        if (magnitude > most) extreme = x[i];
        poison += x[i] * 0.0f;
    }
    *scale = poison == 0.0f ? float_to_f16(q4_scale(x, extreme)) : 0x7c00u;
    const bool finite = (*scale & 0x7c00u) != 0x7c00u;
    const float inverse = finite && (*scale & 0x7fffu) ? 1.0f / f16_to_float(*scale) : 0.0f;
    for (int i = 0; i < kBlock; ++i) q[i] = finite ? uint8_t(q4_nearest(x[i] * inverse)) : 8;
    return finite;
}

// Where input i of a q4 block stands for an output, and whether in the high nibble.
STAPES_INLINE size_t q4_index(size_t i, size_t output) {
    return i / 8 * 4 * kTile + output * 4 + i % 4;
}
STAPES_INLINE int q4_shift(size_t i) { return i % 8 < 4 ? 0 : 4; }

static bool pack_q4(const float* const* rows, size_t outputs, size_t in, uint8_t* tile) {
    bool finite = true;
    for (size_t b = 0; b < ceil_div(in, kBlock); ++b, tile += kQ4BlockBytes) {
        size_t n = in - b * kBlock < kBlock ? in - b * kBlock : kBlock;
        uint8_t* q = tile + kTile * 2;
        memset(q, 0, kTile * kBlock / 2);
        for (size_t o = 0; o < kTile; ++o) {
            float x[kBlock] = {0};
            uint8_t values[kBlock];
            uint16_t scale;
            if (o < outputs) memcpy(x, rows[o] + b * kBlock, n * sizeof(float));
            finite &= quantize_nibbles(x, values, &scale);
            memcpy(tile + o * 2, &scale, 2);
            for (size_t i = 0; i < kBlock; ++i)
                q[q4_index(i, o)] = uint8_t(q[q4_index(i, o)] | (values[i] << q4_shift(i)));
        }
    }
    return finite;
}

static bool pack_tile(Format format, const float* const* rows, size_t outputs, size_t in,
                      uint8_t* tile) {
    if (format == Format::q8) return pack_q8(rows, outputs, in, tile);
    if (format == Format::q4) return pack_q4(rows, outputs, in, tile);
    return pack_words(rows, outputs, in, tile, format == Format::bf16);
}

// Input k of one output of a tile, dequantised.
STAPES_INLINE float unpack_value(Format format, const uint8_t* tile, size_t k, size_t lane) {
    if (format == Format::f32) return reinterpret_cast<const float*>(tile)[k * kTile + lane];
    if (format == Format::bf16)
        return bf16_to_float(reinterpret_cast<const uint16_t*>(tile)[k * kTile + lane]);
    size_t i = k % kBlock;
    const uint8_t* block = tile + k / kBlock * tile_bytes(format, kBlock);
    const uint8_t* q = block + kTile * 2;
    uint16_t scale;
    memcpy(&scale, block + lane * 2, 2);
    int value = format == Format::q8 ? int8_t(q[q8_index(i, lane)])
                                     : ((q[q4_index(i, lane)] >> q4_shift(i)) & 15) - 8;
    return float(value) * f16_to_float(scale);
}

static void unpack_row(Format format, const uint8_t* weights, size_t in, size_t row, float* y) {
    const uint8_t* tile = weights + row / kTile * tile_bytes(format, in);
    for (size_t k = 0; k < in; ++k) y[k] = unpack_value(format, tile, k, row % kTile);
}

static void widen(KvType type, const void* source, size_t n, float* y) {
    const uint16_t* half = static_cast<const uint16_t*>(source);
    if (type == KvType::f32) {
        memcpy(y, source, n * sizeof(float));
        return;
    }
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        vf_store(y + i, type == KvType::f16 ? vf_load_f16(half + i) : vf_load_bf16(half + i));
    for (; i < n; ++i) y[i] = type == KvType::f16 ? f16_to_float(half[i]) : bf16_to_float(half[i]);
}
