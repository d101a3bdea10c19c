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

// R queries against one tile of 16 keys.
template <class Kv, int R>
STAPES_INLINE void score_tile(const AttendJob& job, size_t query, const typename Kv::word* keys,
                              float* scores) {
    VF sum[R][kParts];
    const float* q[R];
    for (int r = 0; r < R; ++r) {
        for (int p = 0; p < kParts; ++p) sum[r][p] = vf_zero();
        q[r] = job.q[query + r];
    }
    for (size_t i = 0; i < job.head_dim; ++i) {
        VF k[kParts];
        for (int p = 0; p < kParts; ++p) k[p] = Kv::load(keys + i * kKeyTile + p * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            VF value = vf_set1(q[r][i]);
            for (int p = 0; p < kParts; ++p) {
                sum[r][p] = vf_fma(k[p], value, sum[r][p]);
                pin(sum[r][p]);
            }
        }
    }
    VF scale = vf_set1(job.scale);
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < kParts; ++p)
            vf_store(scores + r * kKeyBlock + p * kLanes, vf_mul(sum[r][p], scale));
}

template <class Kv>
struct ScoreRows {
    const AttendJob& job;
    const typename Kv::word* keys;
    float* scores;  // of query 0, at this tile
    template <int R>
    void run(size_t query) const {
        score_tile<Kv, R>(job, query, keys, scores + query * kKeyBlock);
    }
};

template <class Kv>
static void score_block(const AttendJob& job, const AttendScratch& s, size_t block, size_t keys) {
    const size_t tile_words = job.head_dim * kKeyTile;
    const auto* k = static_cast<const typename Kv::word*>(job.k[block]);
    for (size_t first = 0; first < keys; first += kKeyTile, k += tile_words) {
        if (job.queries < kWidenFrom) {
            by_panel(job.queries, ScoreRows<Kv>{job, k, s.scores + first});
            continue;
        }
        for (size_t i = 0; i < tile_words; i += kLanes) vf_store(s.keys + i, Kv::load(k + i));
        by_panel(job.queries, ScoreRows<KvF32>{job, s.keys, s.scores + first});
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

// partial[R][16 lanes] += p[R][keys] * v, keys [from, to) in order.
template <class Kv, int R>
STAPES_INLINE void value_lanes(const float* p, const typename Kv::word* v, size_t v_stride,
                               size_t from, size_t to, float* partial, size_t padded) {
    VF sum[R][kParts];
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < kParts; ++i) sum[r][i] = vf_load(partial + r * padded + i * kLanes);
    for (size_t j = from; j < to; ++j) {
        VF value[kParts];
        for (int i = 0; i < kParts; ++i) value[i] = Kv::load(v + j * v_stride + i * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            VF weight = vf_set1(p[r * kKeyBlock + j]);
            for (int i = 0; i < kParts; ++i) {
                sum[r][i] = vf_fma(weight, value[i], sum[r][i]);
                pin(sum[r][i]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < kParts; ++i) vf_store(partial + r * padded + i * kLanes, sum[r][i]);
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
        for (size_t lane = 0; lane < s.padded; lane += kTile) {
            const float* p = s.scores + query * kKeyBlock;
            float* partial = s.partial + query * s.padded + lane;
            value_lanes<Kv, R>(p, v + lane, v_stride, 0, common, partial, s.padded);
            for (int r = 0; r < R; ++r)
                value_lanes<Kv, 1>(p + r * kKeyBlock, v + lane, v_stride, common,
                                   visible_in(job, query + r, first), partial + r * s.padded,
                                   s.padded);
        }
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
