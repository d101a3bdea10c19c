#include "kv_cache.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

namespace stapes {

namespace {
constexpr size_t kMostPositions = size_t(1) << 30;  // positions are int32
constexpr size_t kMostBytes = size_t(1) << 47;

void probe_memory(size_t pages, size_t page_bytes) {
    if (pages > kMostBytes / page_bytes) throw std::bad_alloc();
    AlignedBytes whole(pages * page_bytes);
    *static_cast<volatile uint8_t*>(whole.data()) = 0;  // or the compiler drops the allocation
}

}

KvCache::KvCache(size_t layers, size_t kv_heads, size_t head_dim, KvType type)
    : layers_(layers), kv_heads_(kv_heads), head_dim_(head_dim), type_(type) {
    if (!layers || !kv_heads || !head_dim || layers > 4096 || kv_heads > 4096 || head_dim > 4096)
        throw std::invalid_argument("KvCache: layers, kv_heads and head_dim must lie in 1..4096");
}

size_t KvCache::head_bytes() const {
    return kPagePositions * (head_dim_ + v_stride()) * word_bytes();
}

size_t KvCache::page_bytes() const { return layers_ * kv_heads_ * head_bytes(); }

void KvCache::need_unused() const {
    if (used_.set) throw std::runtime_error("KvCache: a run is using it");
}

KvCache::Use::Use(KvCache& cache) : cache_(&cache) {
    if (cache.used_.set.exchange(true))
        throw std::invalid_argument("KvCache: it is given twice, or another run is using it");
    cache.intact_ = cache.length_;
}

KvCache::Use::~Use() {
    if (!cache_) return;
    cache_->length_ = cache_->intact_;
    cache_->used_.set = false;
}

KvCache KvCache::clone() const {
    need_unused();
    return *this;
}

void KvCache::reserve(size_t positions) {
    need_unused();
    grow(positions);
}

void KvCache::grow(size_t positions) {
    if (positions > kMostPositions)
        throw std::invalid_argument("KvCache: " + std::to_string(positions) + " positions are more than " +
                                    std::to_string(kMostPositions));
    // Asked for as a whole first, so that what can never fit fails before any of it is touched.
    size_t missing = ceil_div(positions, kPagePositions);
    if (missing > pages_.size() + 1) probe_memory(missing - pages_.size(), page_bytes());
    std::vector<std::shared_ptr<AlignedBytes>> grown = pages_;
    while (grown.size() * kPagePositions < positions)
        grown.push_back(std::make_shared<AlignedBytes>(page_bytes()));
    pages_.swap(grown);
}

void KvCache::truncate(size_t length) {
    need_unused();
    if (length > length_)
        throw std::invalid_argument("KvCache.truncate: " + std::to_string(length) +
                                    " is beyond the length " + std::to_string(length_));
    length_ = length;
}

void KvCache::prepare(size_t first, size_t last) {
    grow(last);
    for (size_t page = first / kPagePositions; page * kPagePositions < last; ++page) {
        if (pages_[page].use_count() == 1) continue;
        auto copy = std::make_shared<AlignedBytes>(page_bytes());
        std::memcpy(copy->data(), pages_[page]->data(), page_bytes());
        pages_[page] = std::move(copy);
    }
}

uint8_t* KvCache::head_base(size_t layer, size_t head, size_t position) const {
    return pages_[position / kPagePositions]->data() + (layer * kv_heads_ + head) * head_bytes();
}

void* KvCache::key_tile(size_t layer, size_t head, size_t position) const {
    size_t tile = position % kPagePositions / kKeyTile;
    return head_base(layer, head, position) + tile * head_dim_ * kKeyTile * word_bytes();
}

void* KvCache::value_row(size_t layer, size_t head, size_t position) const {
    size_t keys = kPagePositions * head_dim_;
    size_t row = position % kPagePositions * v_stride();
    return head_base(layer, head, position) + (keys + row) * word_bytes();
}

}  // namespace stapes
