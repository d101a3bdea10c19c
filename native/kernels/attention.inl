// Softmax attention of query rows over blocks of 256 keys. Included by kernels.inl.
//
// A block's partial (maximum, sum, weighted values) is computed from that block alone, and partials
// are combined in position order: the result does not depend on which rows are computed together.
//   score = scale * fma over head_dim in order;  p = exp(score - block maximum)
//   partial values: fma over the visible keys in order, never over keys that are not visible.

struct KvF32 {
    using word = float;
    STAPES_INLINE VF load(const word* p) { return vf_load(p); }
};
struct KvF16 {
    using word = uint16_t;
    STAPES_INLINE VF load(const word* p) { return vf_load_f16(p); }
};
struct KvBf16 {
    using word = uint16_t;
    STAPES_INLINE VF load(const word* p) { return vf_load_bf16(p); }
};

constexpr size_t kWidenFrom = 7;  // queries from which a block is widened to f32 first

// The parts of AttendJob::scratch.
struct AttendScratch {
    float *scores, *partial, *sum, *maxima, *totals, *keys, *values;
    size_t padded;
    explicit AttendScratch(const AttendJob& job) : padded(round_up(job.head_dim, kTile)) {
        scores = job.scratch;                                // [queries][256]
        partial = scores + job.queries * kKeyBlock;          // [queries][padded]
        sum = partial + job.queries * padded;                // [queries][padded]
        maxima = sum + job.queries * padded;                 // [queries]
        totals = maxima + job.queries;                       // [queries]
        keys = totals + job.queries;                         // [head_dim][16]
        values = keys + kKeyTile * job.head_dim;             // [256][padded]
    }
};

// Visible keys of a query inside the block that starts at `first`.
STAPES_INLINE size_t visible_in(const AttendJob& job, size_t query, size_t first) {
    size_t visible = size_t(job.visible[query]);
    if (visible <= first) return 0;
    return visible - first < size_t(kKeyBlock) ? visible - first : size_t(kKeyBlock);
}

// How many vectors of independent sums a loop needs to hide the latency of fma, for R rows.
template <int R>
constexpr int kGroups = R * kParts >= 8 ? 1 : 8 / (R * kParts);

// R queries against T neighbouring tiles of 16 keys.
template <class Kv, int R, int T>
STAPES_INLINE void score_tiles(const AttendJob& job, size_t query, const typename Kv::word* keys,
                               float* scores) {
    const size_t tile_words = job.head_dim * kKeyTile;
    VF sum[R][T * kParts];
    const float* q[R];
    for (int r = 0; r < R; ++r) {
        for (int p = 0; p < T * kParts; ++p) sum[r][p] = vf_zero();
        q[r] = job.q[query + r];
    }
    for (size_t i = 0; i < job.head_dim; ++i) {
        VF k[T * kParts];
        for (int p = 0; p < T * kParts; ++p)
            k[p] = Kv::load(keys + (p / kParts) * tile_words + i * kKeyTile + p % kParts * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            VF value = vf_set1(q[r][i]);
            for (int p = 0; p < T * kParts; ++p) {
                sum[r][p] = vf_fma(k[p], value, sum[r][p]);
                pin(sum[r][p]);
            }
        }
    }
    VF scale = vf_set1(job.scale);
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < T * kParts; ++p)
            vf_store(scores + r * kKeyBlock + p * kLanes, vf_mul(sum[r][p], scale));
}

// Rows against `tiles` tiles.
template <class Kv>
struct ScoreRows {
    const AttendJob& job;
    const typename Kv::word* keys;
    size_t tiles;
    float* scores;  // of query 0, at the first tile
    template <int R>
    void run(size_t query) const {
        constexpr int T = kGroups<R>;
        const size_t tile_words = job.head_dim * kKeyTile;
        float* target = scores + query * kKeyBlock;
        size_t tile = 0;
        for (; tile + T <= tiles; tile += T)
            score_tiles<Kv, R, T>(job, query, keys + tile * tile_words, target + tile * kKeyTile);
        for (; tile < tiles; ++tile)
            score_tiles<Kv, R, 1>(job, query, keys + tile * tile_words, target + tile * kKeyTile);
    }
};

template <class Kv>
static void score_block(const AttendJob& job, const AttendScratch& s, size_t block, size_t keys) {
    const size_t tile_words = job.head_dim * kKeyTile, tiles = ceil_div(keys, kKeyTile);
    const auto* k = static_cast<const typename Kv::word*>(job.k[block]);
    if (job.queries < kWidenFrom)
        return by_panel(job.queries, ScoreRows<Kv>{job, k, tiles, s.scores});
    for (size_t tile = 0; tile < tiles; ++tile, k += tile_words) {
        for (size_t i = 0; i < tile_words; i += kLanes) vf_store(s.keys + i, Kv::load(k + i));
        by_panel(job.queries, ScoreRows<KvF32>{job, s.keys, 1, s.scores + tile * kKeyTile});
    }
}

// Scores -> exp(score - maximum) in place; keys that are not visible become 0.
STAPES_INLINE void softmax_block(float* scores, size_t visible, float* maximum, float* total) {
    const size_t padded = round_up(visible, kLanes);
    for (size_t i = visible; i < padded; ++i) scores[i] = -__builtin_inff();
    VF largest = vf_load(scores);
    for (size_t i = kLanes; i < padded; i += kLanes) largest = vf_max(largest, vf_load(scores + i));
    *maximum = vf_hmax(largest);
    VF centre = vf_set1(*maximum), sum = vf_zero();
    for (size_t i = 0; i < padded; i += kLanes) {
        VF p = vf_exp(vf_sub(vf_load(scores + i), centre));
        vf_store(scores + i, p);
        sum = vf_add(sum, p);
    }
    *total = vf_sum(sum);
}

// partial[R][G * 16 lanes] += p[R][keys] * v, keys [from, to) in order.
template <class Kv, int R, int G>
STAPES_INLINE void value_lanes(const float* p, const typename Kv::word* v, size_t v_stride,
                               size_t from, size_t to, float* partial, size_t padded) {
    VF sum[R][G * kParts];
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < G * kParts; ++i) sum[r][i] = vf_load(partial + r * padded + i * kLanes);
    for (size_t j = from; j < to; ++j) {
        VF value[G * kParts];
        for (int i = 0; i < G * kParts; ++i) value[i] = Kv::load(v + j * v_stride + i * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            VF weight = vf_set1(p[r * kKeyBlock + j]);
            for (int i = 0; i < G * kParts; ++i) {
                sum[r][i] = vf_fma(weight, value[i], sum[r][i]);
                pin(sum[r][i]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < G * kParts; ++i) vf_store(partial + r * padded + i * kLanes, sum[r][i]);
}

template <class Kv>
struct ValueRows {
    const AttendJob& job;
    const AttendScratch& s;
    const typename Kv::word* v;
    size_t v_stride;
    size_t first;  // position of the block's first key
    template <int R>
    void run(size_t query) const {
        size_t common = kKeyBlock;
        for (int r = 0; r < R; ++r) {
            size_t visible = visible_in(job, query + r, first);
            common = visible < common ? visible : common;
        }
        size_t lane = 0;
        for (; lane + kGroups<R> * kTile <= s.padded; lane += kGroups<R> * kTile)
            add_values<R, kGroups<R>>(query, lane, common);
        for (; lane < s.padded; lane += kTile) add_values<R, 1>(query, lane, common);
    }

    // The keys that all R rows see, then what each row sees beyond.
    template <int R, int G>
    void add_values(size_t query, size_t lane, size_t common) const {
        const float* p = s.scores + query * kKeyBlock;
        float* partial = s.partial + query * s.padded + lane;
        value_lanes<Kv, R, G>(p, v + lane, v_stride, 0, common, partial, s.padded);
        for (int r = 0; r < R; ++r)
            value_lanes<Kv, 1, G>(p + r * kKeyBlock, v + lane, v_stride, common,
                                  visible_in(job, query + r, first), partial + r * s.padded,
                                  s.padded);
    }
};

template <class Kv>
static void value_block(const AttendJob& job, const AttendScratch& s, size_t block, size_t keys) {
    const auto* v = static_cast<const typename Kv::word*>(job.v[block]);
    const size_t first = block * kKeyBlock;
    memset(s.partial, 0, job.queries * s.padded * sizeof(float));
    if (job.queries < kWidenFrom) {
        by_panel(job.queries, ValueRows<Kv>{job, s, v, job.v_stride, first});
        return;
    }
    for (size_t j = 0; j < keys; ++j)
        for (size_t lane = 0; lane < s.padded; lane += kLanes)
            vf_store(s.values + j * s.padded + lane, Kv::load(v + j * job.v_stride + lane));
    by_panel(job.queries, ValueRows<KvF32>{job, s, s.values, s.padded, first});
}

// The block's partial joins what the blocks before it gave.
static void combine(const AttendScratch& s, size_t query, float maximum, float total) {
    float* sum = s.sum + query * s.padded;
    const float* partial = s.partial + query * s.padded;
    float before = s.maxima[query];
    float both = maximum > before ? maximum : before;
    float steps[kLanes] = {before - both, maximum - both};
    vf_store(steps, vf_exp(vf_load(steps)));
    VF keep = vf_set1(steps[0]), join = vf_set1(steps[1]);
    for (size_t i = 0; i < s.padded; i += kLanes)
        vf_store(sum + i, vf_fma(vf_load(sum + i), keep, vf_mul(vf_load(partial + i), join)));
    s.totals[query] = s.totals[query] * steps[0] + total * steps[1];
    s.maxima[query] = both;
}

template <class Kv>
static void attend_block(const AttendJob& job, const AttendScratch& s, size_t block) {
    const size_t first = block * kKeyBlock;
    size_t keys = 0;
    for (size_t query = 0; query < job.queries; ++query) {
        size_t visible = visible_in(job, query, first);
        keys = visible > keys ? visible : keys;
    }
    score_block<Kv>(job, s, block, keys);
    float maximum[256], total[256];
    for (size_t query = 0; query < job.queries; ++query)
        if (size_t visible = visible_in(job, query, first))
            softmax_block(s.scores + query * kKeyBlock, visible, maximum + query, total + query);
    value_block<Kv>(job, s, block, keys);
    for (size_t query = 0; query < job.queries; ++query)
        if (visible_in(job, query, first)) combine(s, query, maximum[query], total[query]);
}

template <class Kv>
static void attend_all(const AttendJob& job) {
    AttendScratch s(job);
    memset(s.sum, 0, job.queries * s.padded * sizeof(float));
    for (size_t query = 0; query < job.queries; ++query) {
        s.maxima[query] = -__builtin_inff();
        s.totals[query] = 0.0f;
    }
    for (size_t block = 0; block < job.blocks; ++block) attend_block<Kv>(job, s, block);
    for (size_t query = 0; query < job.queries; ++query) {
        VF total = vf_set1(s.totals[query]);
        map1(s.sum + query * s.padded, job.head_dim, job.out[query],
             [total](VF a) { return vf_div(a, total); });
    }
}

static void attend(const AttendJob& job) {
    switch (job.kv_type) {
        case KvType::f32: attend_all<KvF32>(job); break;
        case KvType::f16: attend_all<KvF16>(job); break;
        case KvType::bf16: attend_all<KvBf16>(job); break;
    }
}

STAPES_INLINE void store_word(KvType type, void* base, size_t index, float value) {
    if (type == KvType::f32)
        static_cast<float*>(base)[index] = value;
    else
        static_cast<uint16_t*>(base)[index] =
            type == KvType::f16 ? float_to_f16(value) : float_to_bf16(value);
}

// A key that is or becomes infinite is stored as NaN: with a score of -infinity it would get no weight
// and vanish, and the answer look sound.
static void store_key(KvType type, const float* x, size_t head_dim, void* tile, size_t lane) {
    // The largest values that round to a finite word.
    const float limit = type == KvType::f16    ? 65519.996f
                        : type == KvType::bf16 ? 3.3961773e38f
                                               : 3.4028234664e38f;
    for (size_t i = 0; i < head_dim; ++i) {
        float magnitude = x[i] < 0.0f ? -x[i] : x[i];
        float value = magnitude <= limit ? x[i] : __builtin_nanf("");
        store_word(type, tile, i * kKeyTile + lane, value);
    }
}

static void store_value(KvType type, const float* x, size_t head_dim, void* row) {
    for (size_t i = 0; i < head_dim; ++i) store_word(type, row, i, x[i]);
}
