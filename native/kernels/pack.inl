// Packing matrices into tiles, and reading single rows back. Included by kernels.inl.

static bool pack_words(const float* const* rows, size_t outputs, size_t in, uint8_t* tile,
                       bool bf16) {
    bool finite = true;
    for (size_t k = 0; k < in; ++k) {
        for (size_t o = 0; o < kTile; ++o) {
            float value = o < outputs ? rows[o][k] : 0.0f;
            float stored = bf16 ? bf16_to_float(float_to_bf16(value)) : value;
            finite = finite && stored - stored == 0.0f;
            if (bf16)
                reinterpret_cast<uint16_t*>(tile)[k * kTile + o] = float_to_bf16(value);
            else
                reinterpret_cast<float*>(tile)[k * kTile + o] = value;
        }
    }
    return finite;
}

STAPES_INLINE float round_half_away(float x) {
    float magnitude = x < 0 ? -x : x;
    float whole = float(int32_t(magnitude));
    if (magnitude - whole >= 0.5f) whole += 1.0f;
    return x < 0 ? -whole : whole;
}

// One output's block of 32, with the numbers of GGUF's Q8_0: scale = peak / 127 rounded to f16,
// values rounded half away from zero with the unrounded scale.
static bool pack_q8_block(const float* x, size_t n, size_t output, uint8_t* block) {
    float peak = 0.0f;
    bool finite = true;
    for (size_t i = 0; i < n; ++i) {
        float magnitude = x[i] < 0 ? -x[i] : x[i];
        finite = finite && magnitude - magnitude == 0.0f;
        peak = magnitude > peak ? magnitude : peak;
    }
    float scale = peak / 127.0f;
    uint16_t stored = float_to_f16(scale);
    float inverse = stored ? 1.0f / scale : 0.0f;  // a scale that rounds to 0 makes a block of zeros
    finite = finite && (stored & 0x7c00u) != 0x7c00u;
    memcpy(block + output * 2, &stored, 2);
    int8_t* q = reinterpret_cast<int8_t*>(block + kTile * 2);
    for (size_t i = 0; i < kBlock; ++i) {
        float value = i < n && finite ? round_half_away(x[i] * inverse) : 0.0f;
        q[(i / 2) * 2 * kTile + output * 2 + (i & 1)] = int8_t(value);
    }
    return finite;
}

static bool pack_q8(const float* const* rows, size_t outputs, size_t in, uint8_t* tile) {
    static const float zeros[kBlock] = {0};
    bool finite = true;
    for (size_t b = 0; b < ceil_div(in, kBlock); ++b) {
        size_t n = in - b * kBlock < kBlock ? in - b * kBlock : kBlock;
        for (size_t o = 0; o < kTile; ++o) {
            const float* x = o < outputs ? rows[o] + b * kBlock : zeros;
            finite = pack_q8_block(x, n, o, tile + b * kQ8BlockBytes) && finite;
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
        y[k] = float(q[(i / 2) * 2 * kTile + lane * 2 + (i & 1)]) * f16_to_float(scale);
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
