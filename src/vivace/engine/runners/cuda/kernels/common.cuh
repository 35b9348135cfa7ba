// Shapes and state that all kernels share. The shape macros (HIDDEN, FFN, HEADS, KV_HEADS, VOCAB, BITS, TOKENS …)
// come from plan.py: one compiled module serves one model, one format of weights and KV, one number of tokens a pass.

#define HEAD_DIM 128                                // of a row of q and of the KV
#define HEAD_SLOTS (HEAD_WIDTH / 8)                 // tiles of a head. A narrow one has zeros behind each half of its row
#define IS_HOLE(d) (HEAD_WIDTH < HEAD_DIM && (d) % 64 >= HEAD_WIDTH / 2)
#define PAGE_TOKENS 64
#define TILE_ROWS 8                                 // weight rows of one tensor-core tile
#define TILE_TOKENS (TOKENS < 16 ? TOKENS : 16)     // tokens of one block; blockIdx.y counts sixteens
#define GROUP_HEADS (HEADS / KV_HEADS)
#define NEIGHBOURS(blocks) (TOKENS <= 2 ? blocks : 1)  // kernels to come wait beside the one that runs
// Whether kernel `bit` lets the next one start only when its own wait is over: what is resident fetches weights, and
// too many fetchers at once delay the loads that the chain is waiting for.
#define IS_LATE(bit) ((LATE_START >> bit) & 1)
enum { QKV, ATTENTION, OUT, GATE_UP, DOWN, HEAD };
// gpt-oss (OSS): further arguments of the kernels whose products have a bias there, and of the attention.
#if OSS
#define BIAS , const float* more_bias
#define CLAMP BIAS, float limit, float slope
#define VIEW , const float* sinks, int window
#else
#define BIAS
#define CLAMP
#define VIEW
#endif
#define LINE_WORDS 32                              // of a line of the cache
// Of bytes before something that wants 16: a pointer that is rounded up is no longer known to be one to shared memory,
// and everything through it is slower.
#define ALIGNED(bytes) (((bytes) + 15) / 16 * 16)
#define LOG2_E 1.4426950408889634f
#define NO_MAXIMUM (-1e30f)

// An activation is a 16-bit integer of two digits; otherwise a bf16.
#define HAS_DIGITS (BITS <= 8)
#define X_BITS (HAS_DIGITS ? 8 : 16)                // of a digit or activation in shared memory
#define HEAD_BITS (BITS == 4 ? 8 : BITS)            // 4 bits are the layers'

#define STOP_TOKENS 16
struct State {           // in device memory; stream.py writes it before the first step
    int position;        // of the first token of this pass
    int count;           // tokens of this pass that are real; the others are padding
    int active;          // 0: steps still in flight change nothing more
    int step;            // tokens made since the stream began; else the number of the pass
    int remaining;       // tokens still allowed
    int seed[2];         // low half, high half
    float temperature;   // 0: greedy
    int stops;
    int stop[STOP_TOKENS];
};

// Where a token of the pass stands. With BATCH every row of a pass is a token with a place of its own, mostly the next
// token of a sequence of its own; otherwise the tokens follow each other in one sequence.
struct Row {             // in device memory; rows/passes.py writes it before each pass
    int position;
    int fresh;           // positions of its sequence from here on are written by this pass
    int pages;           // where its sequence's pages begin; -1: padding
    int token;           // its input; below 0: what row -1 - token of the pass before has chosen
    int number;          // of the pass
    int parts;           // of its attention
    int seed[2];
    float temperature;
    int count;           // of the pass's rows that are real: the first ones
    int logits;          // 1 + where its logits go, counted in rows; 0: nobody needs them
    int unused;
};
#if BATCH
typedef Row Place;
#define IS_REAL(rows, token0, token) (load_fresh(&(rows)[(token0) + (token)].pages) >= 0)
#define POSITION_OF(rows, token0, token) load_fresh(&(rows)[(token0) + (token)].position)
#define PAGE_OF(rows, pages, token, at) pages[load_fresh(&(rows)[token].pages) + (at) / PAGE_TOKENS]
#define DRAW_OF(rows, token) ((rows) + (token))
#else
typedef State Place;
#define IS_REAL(state, token0, token) ((token0) + (token) < load_fresh(&(state)->count))
#define POSITION_OF(state, token0, token) (load_fresh(&(state)->position) + (token0) + (token))
#define PAGE_OF(state, pages, token, at) pages[(at) / PAGE_TOKENS]
#define DRAW_OF(state, token) (state)
#endif
