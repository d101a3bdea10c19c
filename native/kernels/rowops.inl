// Operations on one row. Included by kernels.inl.
//
// A row's tail (n not a multiple of 8) goes through the same vector arithmetic on a padded copy, so
// that a value does not depend on where in a row it stands.

// x / 2 * (1 + erf(x / sqrt 2))
STAPES_INLINE VF vf_gelu(VF x) {
    VF half = vf_mul(x, vf_set1(0.5f));
    return vf_fma(half, vf_erf(vf_mul(x, vf_set1(0.70710678f))), half);
}

// x / (1 + e^-x)
STAPES_INLINE VF vf_silu(VF x) {
    VF one = vf_set1(1.0f), sigmoid = vf_div(one, vf_add(one, vf_exp(vf_sub(vf_zero(), x))));
    sigmoid = vf_select_lt(x, vf_set1(-88.0f), vf_zero(), sigmoid);  // vf_exp ends there
    return vf_mul(x, sigmoid);
}

STAPES_INLINE VF load_tail(const float* p, size_t n) {
    float padded[kLanes] = {0};
    memcpy(padded, p, n * sizeof(float));
    return vf_load(padded);
}

STAPES_INLINE void store_tail(float* p, VF a, size_t n) {
    float padded[kLanes];
    vf_store(padded, a);
    memcpy(p, padded, n * sizeof(float));
}

// The sum of a large array, read as fast as memory gives it: what a benchmark compares with.
static float stream_sum(const float* x, size_t n) {
    VF sums[8];
    for (VF& sum : sums) sum = vf_zero();
    for (size_t i = 0; i + 8 * kLanes <= n; i += 8 * kLanes) {
        prefetch(x + i + 1024);
        prefetch(x + i + 1024 + 16);
        for (int j = 0; j < 8; ++j) sums[j] = vf_add(sums[j], vf_load(x + i + j * kLanes));
    }
    for (int j = 1; j < 8; ++j) sums[0] = vf_add(sums[0], sums[j]);
    return vf_sum(sums[0]);
}

template <class F>
STAPES_INLINE void map1(const float* x, size_t n, float* y, const F& f) {
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) vf_store(y + i, f(vf_load(x + i)));
    if (i < n) store_tail(y + i, f(load_tail(x + i, n - i)), n - i);
}

template <class F>
STAPES_INLINE void map2(const float* a, const float* b, size_t n, float* y, const F& f) {
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) vf_store(y + i, f(vf_load(a + i), vf_load(b + i)));
    if (i < n) store_tail(y + i, f(load_tail(a + i, n - i), load_tail(b + i, n - i)), n - i);
}

static float sum_of_squares(const float* x, size_t n, float centre) {
    VF sum = vf_zero(), c = vf_set1(centre);
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        VF d = vf_sub(vf_load(x + i), c);
        sum = vf_fma(d, d, sum);
    }
    float total = vf_sum(sum);
    for (; i < n; ++i) total += (x[i] - centre) * (x[i] - centre);
    return total;
}

static float sum_of(const float* x, size_t n) {
    VF sum = vf_zero();
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) sum = vf_add(sum, vf_load(x + i));
    float total = vf_sum(sum);
    for (; i < n; ++i) total += x[i];
    return total;
}

// 1 / sqrt(mean + eps); NaN, not 0, when the squares overflowed: a row of zeros would hide it.
static float inverse_root(float mean, float eps) {
    float root = 1.0f / __builtin_sqrtf(mean + eps);
    return root > 0.0f ? root : __builtin_nanf("");
}

static void rms_norm(const float* x, size_t n, const float* weight, float eps, float* y) {
    float mean = sum_of_squares(x, n, 0.0f) / float(n);
    VF scale = vf_set1(inverse_root(mean, eps));
    map2(x, weight, n, y, [scale](VF a, VF w) { return vf_mul(vf_mul(a, scale), w); });
}

static void layer_norm(const float* x, size_t n, const float* weight, const float* bias, float eps,
                       float* y) {
    float mean = sum_of(x, n) / float(n);
    float variance = sum_of_squares(x, n, mean) / float(n);
    VF centre = vf_set1(mean), scale = vf_set1(inverse_root(variance, eps));
    map2(x, weight, n, y, [=](VF a, VF w) { return vf_mul(vf_mul(vf_sub(a, centre), scale), w); });
    map2(y, bias, n, y, [](VF a, VF b) { return vf_add(a, b); });
}

// Half-split (NeoX) rotation; cos_sin is [head_dim / 2] cosines, then as many sines.
static void rope(const float* x, const float* cos_sin, size_t head_dim, float* y) {
    const size_t half = head_dim / 2;
    const float *c = cos_sin, *s = cos_sin + half;
    size_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
        VF a = vf_load(x + i), b = vf_load(x + half + i), ci = vf_load(c + i), si = vf_load(s + i);
        vf_store(y + i, vf_sub(vf_mul(a, ci), vf_mul(b, si)));
        vf_store(y + half + i, vf_add(vf_mul(b, ci), vf_mul(a, si)));
    }
    for (; i < half; ++i) {
        y[i] = x[i] * c[i] - x[half + i] * s[i];
        y[half + i] = x[half + i] * c[i] + x[i] * s[i];
    }
}

static void silu_gate(const float* gate, const float* up, size_t n, float* y) {
    map2(gate, up, n, y, [](VF g, VF u) { return vf_mul(vf_silu(g), u); });
}

static void gelu(const float* x, size_t n, float* y) {
    map1(x, n, y, [](VF a) { return vf_gelu(a); });
}

static void add(const float* a, const float* b, size_t n, float* y) {
    map2(a, b, n, y, [](VF p, VF q) { return vf_add(p, q); });
}

// kLanes channels, of which `count` are there, from channel i on.
STAPES_INLINE VF depthwise_lanes(const float* const* rows, size_t taps, const float* weights,
                                 size_t n, VF sum, size_t i, size_t count) {
    for (size_t t = 0; t < taps; ++t) {
        if (!rows[t]) continue;
        const float *x = rows[t] + i, *w = weights + t * n + i;
        const bool whole = count == kLanes;
        sum = vf_fma(whole ? vf_load(w) : load_tail(w, count),
                     whole ? vf_load(x) : load_tail(x, count), sum);
    }
    return sum;
}

static void depthwise(const float* const* rows, size_t taps, const float* weights, size_t n,
                      const float* bias, float* y) {
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        vf_store(y + i, depthwise_lanes(rows, taps, weights, n, vf_load(bias + i), i, kLanes));
    if (i == n) return;
    VF sum = depthwise_lanes(rows, taps, weights, n, load_tail(bias + i, n - i), i, n - i);
    store_tail(y + i, sum, n - i);
}

static int32_t argmax(const float* x, size_t n) {
    VF largest = vf_set1(-__builtin_inff()), poison = vf_zero();
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        largest = vf_max(vf_load(x + i), largest);
        poison = vf_add(poison, vf_nan(vf_load(x + i)));
    }
    float best = vf_hmax(largest);
    bool poisoned = vf_sum(poison) > 0.0f;
    for (; i < n; ++i) {
        best = x[i] > best ? x[i] : best;
        poisoned |= x[i] != x[i];
    }
    if (poisoned) return -1;
    for (i = 0; x[i] < best; ++i) {
    }
    return int32_t(i);
}
