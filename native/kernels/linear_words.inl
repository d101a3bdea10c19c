// f32 and bf16 weights. Included by linear.inl.

struct WordsF32 {
    static constexpr size_t bytes = 4;
    STAPES_INLINE VF load(const uint8_t* p) { return vf_load(reinterpret_cast<const float*>(p)); }
};
struct WordsBf16 {
    static constexpr size_t bytes = 2;
    STAPES_INLINE VF load(const uint8_t* p) {
        return vf_load_bf16(reinterpret_cast<const uint16_t*>(p));
    }
};

// R rows, T neighbouring tiles, straight from packed weights.
template <class Words, int R, int T>
static void few_words(const LinearJob& job, size_t row, size_t tile) {
    const size_t stride = tile_bytes(job.format, job.in);
    const uint8_t* w = job.weights + tile * stride;
    const float* x = job.x + row * job.x_stride;
    VF sum[R][T][kParts];
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t)
            for (int p = 0; p < kParts; ++p) sum[r][t][p] = vf_zero();
    for (size_t k = 0; k < job.in; ++k, w += kTile * Words::bytes) {
        for (int t = 0; t < T; ++t) {
            const uint8_t* tile_words = w + t * stride;
            prefetch(tile_words + kPrefetchBytes);
            for (int p = 0; p < kParts; ++p) {
                VF weight = Words::load(tile_words + p * kLanes * Words::bytes);
                for (int r = 0; r < R; ++r)
                    sum[r][t][p] =
                        vf_fma(weight, vf_set1(x[r * job.x_stride + k]), sum[r][t][p]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) finish(job, row + r, tile + t, sum[r][t]);
}

template <class Words>
struct FewWords {
    const LinearJob& job;
    size_t tile;
    template <int R>
    void run(size_t row) const {
        few_words<Words, R, 1>(job, row, tile);
    }
};

template <class Words>
static void few_words_rows(const LinearJob& job, size_t first, size_t last) {
    constexpr int kTiles = 4 / kParts;  // enough sums to hide the latency of one row's fma
    size_t tile = first;
    if (job.rows == 1)
        for (; tile + kTiles <= last; tile += kTiles) few_words<Words, 1, kTiles>(job, 0, tile);
    for (; tile < last; ++tile) by_rows<4>(job.rows, FewWords<Words>{job, tile});
}

// R rows by 16 outputs over a slice of f32 weights [n][16]; sums [R][16] are carried along.
template <int R>
static void panel_words(const float* w, size_t n, const float* x, size_t x_stride, float* sums) {
    VF sum[R][kParts];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < kParts; ++p) sum[r][p] = vf_load(sums + r * kTile + p * kLanes);
    for (size_t k = 0; k < n; ++k) {
        VF weights[kParts];
        for (int p = 0; p < kParts; ++p) weights[p] = vf_load(w + k * kTile + p * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            VF value = vf_set1(x[r * x_stride + k]);
            for (int p = 0; p < kParts; ++p) {
                sum[r][p] = vf_fma(weights[p], value, sum[r][p]);
                pin(sum[r][p]);
            }
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < kParts; ++p) vf_store(sums + r * kTile + p * kLanes, sum[r][p]);
}

struct SliceWords {
    const float* w;
    size_t n;
    const float* x;
    size_t x_stride;
    float* sums;
    template <int R>
    void run(size_t row) const {
        panel_words<R>(w, n, x + row * x_stride, x_stride, sums + row * kTile);
    }
};

template <class Words>
static void many_words(const LinearJob& job, size_t tile, size_t row, size_t rows, float* scratch) {
    float* wide = scratch + kRowBlock * kTile;
    const uint8_t* w = job.weights + tile * tile_bytes(job.format, job.in);
    for (size_t k = 0; k < job.in; k += kSliceWords) {
        size_t n = job.in - k < kSliceWords ? job.in - k : kSliceWords;
        const uint8_t* source = w + k * kTile * Words::bytes;
        for (size_t i = 0; i < n * kTile; i += kLanes)
            vf_store(wide + i, Words::load(source + i * Words::bytes));
        by_panel(rows, SliceWords{wide, n, job.x + row * job.x_stride + k, job.x_stride, scratch});
    }
}
