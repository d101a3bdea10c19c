// The keys and values of one sequence, in pages of 512 positions.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "../kernels/kernels.hpp"
#include "memory.hpp"

namespace stapes {

constexpr size_t kPagePositions = 512;  // the bucket in which a cache grows

// Growing adds pages and moves nothing. A clone shares pages; whoever writes to a shared page gets a
// copy of its own first. Per layer and KV head a page holds
//   K  [32 key tiles][head_dim][16 keys]   and   V  [512 positions][head_dim rounded up to 16].
class KvCache {
public:
    KvCache(size_t layers, size_t kv_heads, size_t head_dim, KvType type);

    size_t layers() const { return layers_; }
    size_t kv_heads() const { return kv_heads_; }
    size_t head_dim() const { return head_dim_; }
    size_t v_stride() const { return round_up(head_dim_, kTile); }
    KvType type() const { return type_; }
    size_t length() const { return length_; }
    size_t capacity() const { return pages_.size() * kPagePositions; }
    size_t page_bytes() const;

    void reserve(size_t positions);   // bad_alloc leaves the cache as it was
    void truncate(size_t length);     // keeps the pages
    KvCache clone() const;

    // Held by a run while it uses the cache: nobody else may change or copy it meanwhile, and a run
    // that ends without `finish` has added nothing to it.
    class Use {
    public:
        explicit Use(KvCache& cache);
        ~Use();
        Use(Use&& other) noexcept : cache_(other.cache_) { other.cache_ = nullptr; }
        Use& operator=(Use&&) = delete;
        void finish() { cache_->intact_ = cache_->length_; }

    private:
        KvCache* cache_;
    };

    // Before a run writes positions [first, last): own pages, and room.
    void prepare(size_t first, size_t last);
    void writing(size_t first) { intact_ = first < intact_ ? first : intact_; }
    void written(size_t end) { length_ = end > length_ ? end : length_; }

    void* key_tile(size_t layer, size_t head, size_t position) const;
    void* value_row(size_t layer, size_t head, size_t position) const;

private:
    struct Flag {  // a copy of a cache starts unused
        std::atomic<bool> set{false};
        Flag() = default;
        Flag(const Flag&) {}
    };
    void need_unused() const;
    void grow(size_t positions);
    size_t word_bytes() const { return type_ == KvType::f32 ? 4 : 2; }
    size_t head_bytes() const;
    uint8_t* head_base(size_t layer, size_t head, size_t position) const;

    size_t layers_, kv_heads_, head_dim_;
    KvType type_;
    size_t length_ = 0;
    size_t intact_ = 0;  // positions before this one are untouched by a run that is under way
    Flag used_;
    std::vector<std::shared_ptr<AlignedBytes>> pages_;
};

}  // namespace stapes
