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

static bool pack_tile(Format format, const float* const* rows, size_t outputs, size_t in,
                      uint8_t* tile) {
    if (format == Format::q8) return pack_q8(rows, outputs, in, tile);
    return pack_words(rows, outputs, in, tile, format == Format::bf16);
}

static void unpack_row(Format format, const uint8_t* weights, size_t in, size_t row, float* y) {
    const uint8_t* tile = weights + row / kTile * tile_bytes(format, in);
    const size_t lane = row % kTile;
    if (format != Format::q8) {
        for (size_t k = 0; k < in; ++k) {
            if (format == Format::bf16)
                y[k] = bf16_to_float(reinterpret_cast<const uint16_t*>(tile)[k * kTile + lane]);
            else
                y[k] = reinterpret_cast<const float*>(tile)[k * kTile + lane];
        }
        return;
    }
    for (size_t k = 0; k < in; ++k) {
        const uint8_t* block = tile + k / kBlock * kQ8BlockBytes;
        const int8_t* q = reinterpret_cast<const int8_t*>(block + kTile * 2);
        uint16_t scale;
        memcpy(&scale, block + lane * 2, 2);
        size_t i = k % kBlock;
        y[k] = float(q[q8_index(i, lane)]) * f16_to_float(scale);
    }
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
