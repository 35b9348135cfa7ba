// How keys and values lie in their pages, in bf16 or in 8 bits, and the rounding to 8 bits (pool.py has the same in
// torch). Owns addresses and numbers; who reads or writes which row is the kernels' concern.

// A page of one layer: keys, then values; in each, heads x PAGE_TOKENS x HEAD_DIM of bf16.
#define PAGE_ELEMENTS (KV_HEADS * PAGE_TOKENS * HEAD_DIM)
DEVICE u64 kv_row(int page, int is_value, int head, int slot) {
    return (((u64)page * 2 + is_value) * KV_HEADS + head) * (PAGE_TOKENS * HEAD_DIM) + (u64)slot * HEAD_DIM;
}

#if KV_BITS == 8
// The same in 8 bits. A row is 8 groups of 16 dimensions: 8 neighbours, then the 8 that turn with them. A dimension is
// an integer, plus 128, in a byte; a group has a scale in bf16. A head's rows of a page come first, its scales behind.
typedef u8 Kv;
#define GROUPS (HEAD_DIM / 16)
#define HEAD_PAGE_BYTES (PAGE_TOKENS * (HEAD_DIM + 2 * GROUPS))
DEVICE u64 head_page(int page, int is_value, int head) {
    return (((u64)page * 2 + is_value) * KV_HEADS + head) * HEAD_PAGE_BYTES;
}
DEVICE u64 byte_row(int page, int is_value, int head, int slot) {
    return head_page(page, is_value, head) + slot * HEAD_DIM;
}
// Where a group's scale is: one lane of the attention needs groups t and t + 4, so these are neighbours.
DEVICE u64 scale_at(int page, int is_value, int head, int slot, int group) {
    return head_page(page, is_value, head) + PAGE_TOKENS * HEAD_DIM + slot * 2 * GROUPS + (group & 3) * 4 +
           (group >> 2) * 2;
}
// The number in byte i of a word, exactly: the permutation makes the float 32768 + byte, and a bf16 has few digits.
DEVICE float unpack_byte(u32 word, int i, float scale) {
    return float_of_bits(permute_bytes(word, 0x47000000u, 0x7404u | (u32)i << 4)) * scale + -32896.0f * scale;
}
// Bytes i and i + 1 as bf16.
DEVICE u32 unpack_pair(u32 word, int i, float scale) {
    return pack_bf16(unpack_byte(word, i, scale), unpack_byte(word, i + 1, scale));
}

// Eight neighbouring lanes round a group: each brings a dimension and the one that turns with it. All lanes of the
// warp must be here; only those with a `row` write.
DEVICE void keep_group(float a, float b, int index, u8* row, u16* scale) {
    float most = greater(magnitude(a), magnitude(b));
    UNROLL for (int mask = 4; mask; mask >>= 1) most = greater(most, shuffle_xor(most, mask));
    u16 rounded = (u16)pack_bf16(most * (1.0f / 127.0f), 0.0f);
    float to_integer = most > 1e-30f ? divide(1.0f, bf16_low(rounded)) : 0.0f;
    int low = round_to_int(a * to_integer), high = round_to_int(b * to_integer);
    low = low > 127 ? 127 : low < -127 ? -127 : low;
    high = high > 127 ? 127 : high < -127 ? -127 : high;
    if (!row) return;
    row[index] = (u8)(low + 128);
    row[8 + index] = (u8)(high + 128);
    if (index == 0) *scale = rounded;
}
#else
typedef u16 Kv;
#endif
