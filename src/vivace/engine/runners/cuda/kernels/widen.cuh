// Packed weights back in bf16 and in row order, for torch's products: what decode multiplies by, rounded once. Owns undoing
// the layout of layout.py; a thread takes what a lane of the tensor core takes. In the module for one token.

#if TOKENS == 1 && !BATCH
DEVICE void store_eight(u16* to, const float v[8]) {
    Words4 pairs;
    UNROLL for (int e = 0; e < 4; e++) pairs.w[e] = pack_bf16(v[2 * e], v[2 * e + 1]);
    *(Words4*)to = pairs;
}

// `half`: rows of gate, and of up, or of half a head, whose tiles have 4 and 4 of them; 0: rows are as they lie.
KERNEL(256, 4) widen(const u8* tiles, const float* scales, u16* out, int tile_count, int columns, int half) {
    const int block_columns = BITS == 16 ? 32 : 64, block_bytes = BITS == 4 ? BLOCK_BYTES : 512;
    int blocks = columns / block_columns;
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    int lane = i % 32, block = i / 32 % blocks, tile = i / 32 / blocks, g = lane >> 2, t = lane & 3;
    if (tile >= tile_count) return;
    u64 row = (u64)tile * TILE_ROWS + g;
    const u8* at = tiles + ((u64)tile * blocks + block) * block_bytes;
    float scale = BITS == 16 ? 1.0f : scales[row];
    if (half) row = (u64)(tile / (half / 4)) * 2 * half + tile % (half / 4) * 4 + g % 4 + g / 4 * half;
    u16* to = out + row * columns + block * block_columns + 8 * t;
#if BITS == 16
    *(Words4*)to = *(const Words4*)(at + lane * 16);
#else
    UNROLL for (int part = 0; part < 2; part++) {  // 32 columns each
        float v[8];
#if BITS == 4
        Words2 bytes = *(const Words2*)(at + lane * 8);
        u32 step = at[256 + (part * 8 + g) * 2], zero = at[256 + (part * 8 + g) * 2 + 1];
        UNROLL for (int e = 0; e < 8; e++) {
            int number = bytes.w[e / 4] >> (8 * (e % 4) + 4 * part) & 15;
            v[e] = (float)(16 * number - (int)zero) * ((float)step * scale);
        }
#else
        Words2 bytes = *(const Words2*)(at + lane * 16 + part * 8);
        UNROLL for (int e = 0; e < 8; e++) v[e] = (float)(signed char)(bytes.w[e / 4] >> 8 * (e % 4) & 255) * scale;
#endif
        store_eight(to + 32 * part, v);
    }
#endif
}
#endif
