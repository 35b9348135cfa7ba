// The one step of a prefill that torch has no single kernel for: rotation of q and k, and k and v into their pages.
// The products around it are torch's.

// rows [tokens][HEADS + 2 * KV_HEADS][HEAD_DIM] of bf16, bias added; one block a token
KERNEL(256, 1) place(const u16* rows, const Float2* rotation, const int* pages, int start, u16* q, u16* kv) {
    int token = blockIdx.x, at = start + token;
    const int heads = HEADS + 2 * KV_HEADS, half = HEAD_DIM / 2;
    let_next_start();
    wait_for_previous();
    for (int i = threadIdx.x; i < heads * half; i += 256) {
        int head = i / half, low = i % half;
        const u16* row = rows + ((u64)token * heads + head) * HEAD_DIM;
        float a = bf16_low(row[low]), b = bf16_low(row[low + half]);
        if (head < HEADS + KV_HEADS) {
            Float2 turn = rotation[(u64)at * half + low];  // cosine, sine
            float turned = a * turn.x - b * turn.y;
            b = b * turn.x + a * turn.y;
            a = turned;
        }
        int is_value = head >= HEADS + KV_HEADS, kv_head = (head - HEADS) % KV_HEADS;
        u16* out = head < HEADS ? q + ((u64)token * HEADS + head) * HEAD_DIM
                                : kv + kv_row(pages[at / PAGE_TOKENS], is_value, kv_head, at % PAGE_TOKENS);
        out[low] = (u16)pack_bf16(a, 0.0f);
        out[low + half] = (u16)pack_bf16(b, 0.0f);
    }
}
