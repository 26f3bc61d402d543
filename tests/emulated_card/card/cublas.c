/* cuBLAS's products, as far as CuPy's matmul and dot ask for them: queued as a kernel is, computed on the host in
 * double precision. ../libraries.py adds the entries that CuPy's module needs in order to load; they are not done. */
#include "../kernels/c/halves.h"
#include "devices.h"
#include "memory.h"
#include "settings.h"
#include "streams.h"

#include <library_types.h>
#include <stdlib.h>

/* cuBLAS Library, "cublasStatus_t". */
enum { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { ILLEGAL_ADDRESS = 700, VERSION = 130500, ON_HOST = 0 };

typedef struct handle {
    const void *stream;
    int pointer_mode, math_mode;
} handle;

/* By columns, as in Fortran. */
typedef struct matrix {
    uint64_t address;
    int64_t leading, stride;
    int rows, columns, type;
} matrix;

typedef struct product {
    card_work work;
    matrix a, b, c;
    int a_transposed, b_transposed, m, n, k, batches;
    double alpha, beta;
} product;

static uint64_t item_bytes(int type) {
    switch (type) {
        case CUDA_R_16F:
        case CUDA_R_16BF: return 2;
        case CUDA_R_32F: return 4;
        case CUDA_R_64F: return 8;
        default: return 0;
    }
}

static double load(const char *at, int type) {
    uint16_t half;
    float single;
    double value;
    if (type == CUDA_R_64F) return memcpy(&value, at, 8), value;
    if (type == CUDA_R_32F) return memcpy(&single, at, 4), single;
    memcpy(&half, at, 2);
    return type == CUDA_R_16F ? f32_of_f16(half) : f32_of_bf16(half);
}

static void store(char *at, int type, double value) {
    const float single = (float)value;
    uint16_t half;
    if (type == CUDA_R_64F) memcpy(at, &value, 8);
    else if (type == CUDA_R_32F) memcpy(at, &single, 4);
    else {
        half = type == CUDA_R_16F ? f16_of_f64(value) : bf16_of_f64(value);
        memcpy(at, &half, 2);
    }
}

static uint64_t column_of(const matrix *of, int batch, int column) {
    return of->address + item_bytes(of->type) * (uint64_t)(batch * of->stride + column * of->leading);
}

/* Sends a matrix through the L2, and returns its numbers, transposed where asked; NULL where they are not in memory. */
static double *fetched(const matrix *of, int batch, int transposed, card_l2 *l2, card_account *account) {
    const uint64_t item = item_bytes(of->type), bytes = item * (uint64_t)of->rows;
    double *values = malloc(sizeof *values * (size_t)of->rows * (size_t)of->columns + 1);
    for (int column = 0; column < of->columns; ++column) {
        const uint64_t address = column_of(of, batch, column);
        const char *at = card_reach(address, bytes);
        if (!at) {
            free(values);
            return NULL;
        }
        card_l2_range(l2, address, bytes, CARD_L2_READ, &account->dram);
        account->l2_sectors += (bytes + CARD_SECTOR_BYTES - 1) / CARD_SECTOR_BYTES;
        for (int row = 0; row < of->rows; ++row) {
            const size_t to = transposed ? (size_t)row * (size_t)of->columns + (size_t)column
                                         : (size_t)column * (size_t)of->rows + (size_t)row;
            values[to] = load(at + item * (uint64_t)row, of->type);
        }
    }
    return values;
}

static int compute(const product *this, int batch, card_l2 *l2, card_account *account) {
    const uint64_t item = item_bytes(this->c.type), bytes = item * (uint64_t)this->m;
    double *a = fetched(&this->a, batch, this->a_transposed, l2, account);
    double *b = fetched(&this->b, batch, this->b_transposed, l2, account);
    double *sums = malloc(sizeof *sums * (size_t)this->m + 1);
    int status = a && b ? 0 : ILLEGAL_ADDRESS;
    for (int column = 0; column < this->n && !status; ++column) {
        const uint64_t address = column_of(&this->c, batch, column);
        char *to = card_reach(address, bytes);
        if (!to) {
            status = ILLEGAL_ADDRESS;
            break;
        }
        if (this->beta != 0) card_l2_range(l2, address, bytes, CARD_L2_READ, &account->dram);
        card_l2_range(l2, address, bytes, CARD_L2_WRITE, &account->dram);
        account->l2_sectors += (bytes + CARD_SECTOR_BYTES - 1) / CARD_SECTOR_BYTES;
        for (int row = 0; row < this->m; ++row) sums[row] = 0;
        for (int i = 0; i < this->k; ++i) {
            const double *from = a + (size_t)i * (size_t)this->m;
            const double factor = b[(size_t)column * (size_t)this->k + (size_t)i];
            for (int row = 0; row < this->m; ++row) sums[row] += factor * from[row];
        }
        for (int row = 0; row < this->m; ++row) {
            char *at = to + item * (uint64_t)row;
            const double before = this->beta != 0 ? this->beta * load(at, this->c.type) : 0;
            store(at, this->c.type, this->alpha * sums[row] + before);
        }
    }
    free(a);
    free(b);
    free(sums);
    return status;
}

static int run_product(card_work *work, card_stream *stream, double start_ns, double *end_ns) {
    const product *this = (const product *)work;
    const card_settings *settings = card_settings_now();
    card_account account = {0};
    int status = 0;
    for (int batch = 0; batch < this->batches && !status; ++batch)
        status = compute(this, batch, card_device(stream->device)->l2, &account);
    const uint64_t flop = 2 * (uint64_t)this->m * (uint64_t)this->n * (uint64_t)this->k * (uint64_t)this->batches;
    const int type = this->a.type;
    *(type == CUDA_R_64F ? &account.flop64 : type == CUDA_R_32F ? &account.flop32 : &account.flop16) = flop;
    *end_ns = start_ns + card_kernel_ns(&settings->model, &settings->pace, &account);
    card_publish_work(stream->device);
    return status;
}

static double scalar(const void *at, int type) { return load(at, type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F); }

static int multiply(
    const handle *with, matrix a, int a_transposed, matrix b, int b_transposed, matrix c, int k, const void *alpha,
    const void *beta, int batches) {
    if (!item_bytes(a.type) || !item_bytes(b.type) || !item_bytes(c.type)) return NOT_SUPPORTED;
    if (with->pointer_mode != ON_HOST) return NOT_SUPPORTED;
    if (c.rows < 0 || c.columns < 0 || k < 0 || batches < 0) return INVALID_VALUE;
    if (a.leading < a.rows || b.leading < b.rows || c.leading < c.rows) return INVALID_VALUE;
    const int lost = card_enter(CARD_LAUNCH_CALL_NS);
    card_stream *stream = card_stream_of(with->stream);
    if (lost || !stream) return card_leave(EXECUTION_FAILED);
    product *asked = card_work_new(sizeof *asked, run_product, NULL);
    asked->a = a, asked->b = b, asked->c = c;
    asked->a_transposed = a_transposed, asked->b_transposed = b_transposed;
    asked->m = c.rows, asked->n = c.columns, asked->k = k, asked->batches = batches;
    asked->alpha = scalar(alpha, c.type), asked->beta = scalar(beta, c.type);
    return card_leave(card_queue(stream, &asked->work) ? EXECUTION_FAILED : SUCCESS);
}

int cublasGemmStridedBatchedEx(
    const handle *with, int a_operation, int b_operation, int m, int n, int k, const void *alpha, const void *a,
    int a_type, int a_leading, int64_t a_stride, const void *b, int b_type, int b_leading, int64_t b_stride,
    const void *beta, void *c, int c_type, int c_leading, int64_t c_stride, int batches, int compute_type,
    int algorithm) {
    (void)compute_type, (void)algorithm;
    const matrix of_a = {(uint64_t)a, a_leading, a_stride, a_operation ? k : m, a_operation ? m : k, a_type};
    const matrix of_b = {(uint64_t)b, b_leading, b_stride, b_operation ? n : k, b_operation ? k : n, b_type};
    const matrix of_c = {(uint64_t)c, c_leading, c_stride, m, n, c_type};
    return multiply(with, of_a, a_operation != 0, of_b, b_operation != 0, of_c, k, alpha, beta, batches);
}

int cublasGemmEx(
    const handle *with, int a_operation, int b_operation, int m, int n, int k, const void *alpha, const void *a,
    int a_type, int a_leading, const void *b, int b_type, int b_leading, const void *beta, void *c, int c_type,
    int c_leading, int compute_type, int algorithm) {
    return cublasGemmStridedBatchedEx(
        with, a_operation, b_operation, m, n, k, alpha, a, a_type, a_leading, 0, b, b_type, b_leading, 0, beta, c,
        c_type, c_leading, 0, 1, compute_type, algorithm);
}

int cublasCreate_v2(handle **made) {
    *made = calloc(1, sizeof **made);
    return SUCCESS;
}

int cublasDestroy_v2(handle *with) {
    free(with);
    return SUCCESS;
}

int cublasGetVersion_v2(const handle *with, int *version) {
    (void)with;
    *version = VERSION;
    return SUCCESS;
}

int cublasSetStream_v2(handle *with, const void *stream) {
    with->stream = stream;
    return SUCCESS;
}

int cublasGetStream_v2(const handle *with, const void **stream) {
    *stream = with->stream;
    return SUCCESS;
}

int cublasSetPointerMode_v2(handle *with, int mode) {
    with->pointer_mode = mode;
    return SUCCESS;
}

int cublasGetPointerMode_v2(const handle *with, int *mode) {
    *mode = with->pointer_mode;
    return SUCCESS;
}

int cublasSetMathMode(handle *with, int mode) {
    with->math_mode = mode;
    return SUCCESS;
}

int cublasGetMathMode(const handle *with, int *mode) {
    *mode = with->math_mode;
    return SUCCESS;
}
