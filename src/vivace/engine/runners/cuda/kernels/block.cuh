// A run of BLOCK_TOKENS positions out of the pages, in registers: a warp has all dimensions of 16 of the keys, and some
// dimensions of all values, as the tensor core wants them. KV in 8 bits is unpacked where it is used. Owns the loads;
// what is computed is attention.cuh's.

#define BLOCK_TOKENS (16 * ATTENTION_WARPS)
#define DIMENSIONS (HEAD_DIM / ATTENTION_WARPS)           // of one warp
#define VALUE_REGISTERS (DIMENSIONS / 8)                  // of one lane and position
#if CLUSTERED  // a block has two teams of warps, each with a run of its own
#define ATTENTION_WARP (threadIdx.x / 32 % ATTENTION_WARPS)
#else
#define ATTENTION_WARP (threadIdx.x >> 5)
#endif

// The pages of one block. They are read well before its rows: one load must not wait for the other.
struct Pages {
    int id[BLOCK_TOKENS / PAGE_TOKENS];
    DEVICE Pages(const int* pages, int b, int length) {
        UNROLL for (int i = 0; i < BLOCK_TOKENS / PAGE_TOKENS; i++) {
            int page = b * (BLOCK_TOKENS / PAGE_TOKENS) + i;
            id[i] = page * PAGE_TOKENS < length ? pages[page] : 0;
        }
    }
    DEVICE int of(int place) const { return id[BLOCK_TOKENS == PAGE_TOKENS ? 0 : place / PAGE_TOKENS]; }
};

template <int REGISTERS> DEVICE void load_registers(const u16* at, u32 out[REGISTERS]) {
    if (REGISTERS == 4) {
        Words4 w = load_fresh((const Words4*)at);
        UNROLL for (int j = 0; j < REGISTERS; j++) out[j] = w.w[j];
    } else if (REGISTERS == 1) {
        out[0] = (u32)load_fresh((const int*)at);
    } else {
        Words2 w = load_fresh((const Words2*)at);
        UNROLL for (int j = 0; j < REGISTERS; j++) out[j] = w.w[j];
    }
}

#if KV_BITS == 8
#define VALUE_AT (warp * DIMENSIONS + t * 2 * VALUE_REGISTERS)        // first byte of a lane, in a row of values
#define DIMENSION_OF(byte) ((byte) / 16 * 8 + ((byte) & 8) * 8 + ((byte) & 7))

struct Block {                                            // as it lies in the pages: unpacked where it is used
    u32 k[2][8];                                          // 16 positions, 8 and 8; groups t and t + 4
    u32 k_scale[2];                                       // of both groups
    u32 v[BLOCK_TOKENS / 8][VALUE_REGISTERS / 2];         // all positions; this warp's dimensions
    u32 v_scale[BLOCK_TOKENS / 8];
};

// Fill in the positions from … to-1 of block b; the rest stays as it is.
DEVICE void load_keys(Block& block, const Kv* kv, const Pages& pages, int kv_head, int b, int from, int to) {
    int lane = threadIdx.x & 31, warp = ATTENTION_WARP, g = lane >> 2, t = lane & 3;
    UNROLL for (int half = 0; half < 2; half++) {
        int at = b * BLOCK_TOKENS + 16 * warp + 8 * half + g;
        if (at < from || at >= to) continue;
        int page = pages.of(16 * warp + 8 * half), slot = at % PAGE_TOKENS;
        const u8* row = kv + byte_row(page, 0, kv_head, slot) + 16 * t;
        load_registers<4>((const u16*)row, block.k[half]);
        load_registers<4>((const u16*)(row + 64), block.k[half] + 4);
        block.k_scale[half] = (u32)load_fresh((const int*)(kv + scale_at(page, 0, kv_head, slot, t)));
    }
}
DEVICE void load_values(Block& block, const Kv* kv, const Pages& pages, int kv_head, int b, int from, int to) {
    int lane = threadIdx.x & 31, warp = ATTENTION_WARP, g = lane >> 2, t = lane & 3;
    UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++) {
        int at = b * BLOCK_TOKENS + 8 * n + g;
        if (at < from || at >= to) continue;
        int page = pages.of(8 * n), slot = at % PAGE_TOKENS;
        load_registers<VALUE_REGISTERS / 2>((const u16*)(kv + byte_row(page, 1, kv_head, slot) + VALUE_AT), block.v[n]);
        block.v_scale[n] = load_fresh((const u16*)(kv + scale_at(page, 1, kv_head, slot, VALUE_AT / 16)));
    }
}
// Dimensions 32i + 8t + 2p, and one more, of a key; pair j of this lane's dimensions of a value: both in bf16.
DEVICE u32 key_pair(const Block& block, int half, int i, int p) {
    float scale = i & 1 ? bf16_high(block.k_scale[half]) : bf16_low(block.k_scale[half]);
    return unpack_pair(block.k[half][(i & 1) * 4 + (i >> 1) * 2 + (p >> 1)], 2 * (p & 1), scale);
}
DEVICE u32 value_pair(const Block& block, int n, int j) {
    return unpack_pair(block.v[n][j >> 1], 2 * (j & 1), bf16_low(block.v_scale[n]));
}
// Bring old rows of a whole block into L2.
DEVICE void expect_block(const Kv* kv, const int* pages, int kv_head, int b) {
    for (int page = b * BLOCK_TOKENS / PAGE_TOKENS; page < (b + 1) * BLOCK_TOKENS / PAGE_TOKENS; page++)
        for (int i = threadIdx.x; i < HEAD_PAGE_BYTES / 128; i += ATTENTION_WARPS * 32) {
            const u8* line = kv + head_page(pages[page], 0, kv_head) + i * 128;
            prefetch_l2(line);
            prefetch_l2(line + KV_HEADS * HEAD_PAGE_BYTES);
        }
}
// Past the end a scale of 0 makes both 0: keys are masked there, and values are multiplied by 0.
DEVICE void clear_keys(Block& block) {
    UNROLL for (int half = 0; half < 2; half++) {
        UNROLL for (int i = 0; i < 8; i++) block.k[half][i] = 0;
        block.k_scale[half] = 0;
    }
}
DEVICE void clear_values(Block& block) {
    UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++) {
        UNROLL for (int j = 0; j < VALUE_REGISTERS / 2; j++) block.v[n][j] = 0;
        block.v_scale[n] = 0;
    }
}
#else
#define DIMENSION_OF(d) (d)

struct Block {
    u32 k[2][4][4];                                       // 16 positions, 8 and 8; all dimensions
    u32 v[BLOCK_TOKENS / 8][VALUE_REGISTERS];             // all positions; this warp's dimensions
};

// Fill in the positions from … to-1 of block b; the rest stays as it is.
DEVICE void load_keys(Block& block, const u16* kv, const Pages& pages, int kv_head, int b, int from, int to) {
    int lane = threadIdx.x & 31, warp = ATTENTION_WARP, g = lane >> 2, t = lane & 3;
    UNROLL for (int half = 0; half < 2; half++) {
        int at = b * BLOCK_TOKENS + 16 * warp + 8 * half + g;
        if (at < from || at >= to) continue;
        const u16* row = kv + kv_row(pages.of(16 * warp + 8 * half), 0, kv_head, at % PAGE_TOKENS) + 8 * t;
        UNROLL for (int i = 0; i < 4; i++)
            if (!IS_HOLE(32 * i)) load_registers<4>(row + 32 * i, block.k[half][i]);
    }
}
DEVICE void load_values(Block& block, const u16* kv, const Pages& pages, int kv_head, int b, int from, int to) {
    int lane = threadIdx.x & 31, warp = ATTENTION_WARP, g = lane >> 2, t = lane & 3;
    if (IS_HOLE(warp * DIMENSIONS)) return;
    UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++) {
        int at = b * BLOCK_TOKENS + 8 * n + g;
        if (at < from || at >= to) continue;
        const u16* row = kv + kv_row(pages.of(8 * n), 1, kv_head, at % PAGE_TOKENS);
        load_registers<VALUE_REGISTERS>(row + warp * DIMENSIONS + t * 2 * VALUE_REGISTERS, block.v[n]);
    }
}
DEVICE u32 key_pair(const Block& block, int half, int i, int p) { return block.k[half][i][p]; }
DEVICE u32 value_pair(const Block& block, int n, int j) { return block.v[n][j]; }
// Bring old rows of a whole block into L2.
DEVICE void expect_block(const u16* kv, const int* pages, int kv_head, int b) {
    for (int page = b * BLOCK_TOKENS / PAGE_TOKENS; page < (b + 1) * BLOCK_TOKENS / PAGE_TOKENS; page++)
        UNROLL for (int i = threadIdx.x; i < PAGE_TOKENS * 2; i += ATTENTION_WARPS * 32) {
            const u16* line = kv + kv_row(pages[page], 0, kv_head, 0) + i * 64;
            prefetch_l2(line);
            prefetch_l2(line + PAGE_ELEMENTS);
        }
}
// Keys past the end may be anything finite: their scores are masked. Values are multiplied by 0, so they must be.
DEVICE void clear_keys(Block& block) {
    UNROLL for (int half = 0; half < 2; half++)
        UNROLL for (int i = 0; i < 16; i++) block.k[half][i / 4][i % 4] = 0;
}
DEVICE void clear_values(Block& block) {
    UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++)
        UNROLL for (int j = 0; j < VALUE_REGISTERS; j++) block.v[n][j] = 0;
}
#endif
DEVICE void load_block(Block& block, const Kv* kv, const Pages& pages, int kv_head, int b, int from, int to) {
    load_keys(block, kv, pages, kv_head, b, from, to);
    load_values(block, kv, pages, kv_head, b, from, to);
}
