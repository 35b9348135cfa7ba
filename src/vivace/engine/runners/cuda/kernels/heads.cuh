// What happens to each head of q and k: its norm, for families that have it (QK_NORM), and its rotation. Squares are added in
// one order wherever a head is normalised: over a tile of 8 rows, then over the 16 tiles of the head. So the result does not
// depend on which kernel makes it. Owns that order; who brings the numbers together is the kernels' concern.

// Two dimensions that turn together; step by step, as `squared` (product.cuh).
DEVICE Float2 turned_by(Float2 turn, float a, float b) {  // cosine, sine
    return {multiply_add(a, turn.x, -multiply(b, turn.y)), multiply_add(b, turn.x, multiply(a, turn.y))};
}

#if QK_NORM
#define HEAD_TILES (HEAD_DIM / TILE_ROWS)

// The squares of a tile: four neighbouring lanes bring a dimension and the one that turns with it. All lanes must be here.
DEVICE float tile_squares(float a, float b) {
    float squares = multiply_add(a, a, multiply(b, b));
    squares += shuffle_xor(squares, 1);
    squares += shuffle_xor(squares, 2);
    return squares;
}
// What a head is multiplied by, from the squares of its tiles.
DEVICE float head_unit(const float* squares, int stride, float epsilon) {
    float total = 0.0f;
    UNROLL for (int tile = 0; tile < HEAD_TILES; tile++) total += squares[tile * stride];
    return rsqrt_fast(total * (1.0f / HEAD_DIM) + epsilon);
}
DEVICE float normalised(float value, float unit, float gain) { return multiply(multiply(value, unit), gain); }

// The squares of all heads of one token, [HEADS + KV_HEADS][HEAD_TILES]; 256 threads. `pair(head, low)` gives dimensions
// low and low + 64.
template <class Pair> DEVICE void square_heads(float* squares, Pair pair) {
    for (int i = threadIdx.x; i < (HEADS + KV_HEADS) * HEAD_DIM / 2; i += 256) {  // whole warps: a multiple of 64
        int head = i / (HEAD_DIM / 2), low = i % (HEAD_DIM / 2);
        Float2 v = pair(head, low);
        float own = tile_squares(v.x, v.y);
        if (low % 4 == 0) squares[head * HEAD_TILES + low / 4] = own;
    }
    block_sync();
}
#define HEAD_GAIN , const float* head_gain              // further arguments of the kernels that make heads
#define PLACE_GAIN HEAD_GAIN, float epsilon
#else
#define HEAD_GAIN
#define PLACE_GAIN
#endif
