// MXFP4 weights as they are: 32 columns of a row are a group with a scale, a power of two, and a number is one of 0, 0.5, 1,
// 1.5, 2, 3, 4, 6 or minus that. Twice that is an integer, so the tensor core multiplies the 16-bit activations by integers,
// exactly, and a group's sum is scaled in fp32; the half is its row's scale. As in int4.cuh up to four groups take their
// places side by side. Owns the format (weights/oss.py has the same in torch) and the sums of one warp and two tiles.

#define MXFP4 40                           // as a width: no number of bits
// A block is 64 columns of 8 rows. Lane (g, t) has 8 bytes: columns 8t … 8t+7 of row g, a digit each, of the first 32, then of
// the next. Behind them the scales, a byte each, [2 groups][8 rows].
#define MXFP4_BYTES (8 * 32 + 2 * 8)

// Four of them, each as 140 + number: what the 140 adds is taken off a group's sum. One table has that for digits without a
// sign, the other for those with one. All entries have the highest bit, so for digits of the other table each gives 255, and
// nothing is lost by the `and`. `turned` has all signs turned.
#define MXFP4_ZERO 140
#define MXFP4_SIGNS 0x88888888u
DEVICE u32 mxfp4_bytes(u32 digits, u32 turned) {
    return permute_or_sign(0x8f8e8d8cu, 0x98949290u, digits) & permute_or_sign(0x898a8b8cu, 0x80848688u, turned);
}

template <int COUNT> struct Mxfp4Weights {           // COUNT groups of a row
    static const int PASSES = (COUNT + SHARE - 1) / SHARE;

    // What the 140 adds to a pass.
    template <class RightOf> DEVICE static Added add(int pass, RightOf right_of) {
        Added out = Int4Weights<COUNT>::add(pass, right_of);
        UNROLL for (int n = 0; n < COLUMN_TILES; n++) out.x[n] *= MXFP4_ZERO;
        return out;
    }
    DEVICE static float scale(const u8* tile, int group) {
        u32 exponent = tile[group / 2 * MXFP4_BYTES + 256 + group % 2 * 8 + (threadIdx.x >> 2 & 7)];
        return float_of_bits(exponent << 23);
    }

    // As Int4Weights::multiply; groups are added in the same order.
    template <class RightOf, class AddedOf>
    DEVICE static void multiply(const u8* upper, const u8* lower, RightOf right_of, AddedOf added_of,
                                float total[COLUMN_TILES][4]) {
        int lane = threadIdx.x & 31, own = SHARE > 1 ? lane % 4 / TILE_TOKENS : 0;
        float sums[4 / SHARE][COLUMN_TILES][2] = {};
        UNROLL for (int pass = 0; pass < PASSES; pass++) {
            int c[COLUMN_TILES][4] = {};
            UNROLL for (int i = pass * SHARE; i < (pass + 1) * SHARE && i < COUNT; i++) {
                u32 a = *(const u32*)(upper + i / 2 * MXFP4_BYTES + lane * 8 + i % 2 * 4);
                u32 b = *(const u32*)(lower + i / 2 * MXFP4_BYTES + lane * 8 + i % 2 * 4);
                u32 x = a ^ MXFP4_SIGNS, y = b ^ MXFP4_SIGNS;
                u32 left[4] = {mxfp4_bytes(a, x), mxfp4_bytes(b, y), mxfp4_bytes(a >> 16, x >> 16),
                               mxfp4_bytes(b >> 16, y >> 16)};
                Right right = right_of(i);
                UNROLL for (int n = 0; n < COLUMN_TILES; n++)
                    mma_u8(c[n], left[0], left[1], left[2], left[3], right.b[n][0], right.b[n][1]);
            }
            int group = pass * SHARE + own < COUNT ? pass * SHARE + own : COUNT - 1;  // past the end sums are 0
            float scales[2] = {scale(upper, group), scale(lower, group)};
            Added added = added_of(pass);
            UNROLL for (int n = 0; n < COLUMN_TILES; n++)
                UNROLL for (int tile = 0; tile < 2; tile++) {
                    float& sum = sums[pass % (4 / SHARE)][n][tile];
                    int exact = Int4Weights<COUNT>::joined(c, n, tile) - added.x[n];  // < 2^24
                    sum = multiply_add(scales[tile], (float)exact, sum);
                }
        }
        UNROLL for (int n = 0; n < COLUMN_TILES; n++)
            UNROLL for (int tile = 0; tile < 2; tile++)
                total[n][2 * tile] = Int4Weights<COUNT>::add_groups(sums, n, tile);
    }
};
