// Six kernels on which the overhead of NUMA profilers is measured: STREAM's triad, sparse matrix
// times vector, Jacobi, matrix product, n-body, hash table. Prints the CPU seconds of each, one a
// line.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void* allocate(size_t bytes) {
    void* block = calloc(bytes, 1);
    if (block == NULL) exit(2);
    return block;
}

static double triad(long n, int repeats) {
    double *a = allocate(n * 8), *b = allocate(n * 8), *c = allocate(n * 8);
    for (long i = 0; i < n; ++i) b[i] = (double)i, c[i] = 1;
    for (int k = 0; k < repeats; ++k)
        for (long i = 0; i < n; ++i) a[i] = b[i] + k * c[i];
    return a[n / 2];
}

static double sparse_matrix_vector(int n, int per_row, int repeats) {
    int* column = allocate(sizeof(int) * (size_t)n * (size_t)per_row);
    double *value = allocate(8 * (size_t)n * (size_t)per_row), *x = allocate(8 * (size_t)n),
           *y = allocate(8 * (size_t)n);
    uint64_t random = 1;
    for (long i = 0; i < (long)n * per_row; ++i) {
        random = random * 6364136223846793005u + 1;
        column[i] = (int)((random >> 33) % (unsigned)n);
        value[i] = (double)(i % 7);
    }
    for (int k = 0; k < repeats; ++k)
        for (int i = 0; i < n; ++i) {
            double sum = 0;
            for (int j = i * per_row; j < (i + 1) * per_row; ++j) sum += value[j] * x[column[j]];
            y[i] = sum + 1;
            x[i] = y[i] * 1e-3;
        }
    return y[n / 2];
}

static double jacobi(int n, int repeats) {
    double *a = allocate(8 * (size_t)n * (size_t)n), *b = allocate(8 * (size_t)n * (size_t)n);
    for (int i = 0; i < n * n; ++i) a[i] = i % 13;
    for (int k = 0; k < repeats; ++k) {
        for (int i = 1; i < n - 1; ++i)
            for (int j = 1; j < n - 1; ++j)
                b[i * n + j] = 0.25 * (a[i * n + j - 1] + a[i * n + j + 1] + a[(i - 1) * n + j] +
                                       a[(i + 1) * n + j]);
        double* swapped = a;
        a = b;
        b = swapped;
    }
    return a[n * n / 2];
}

static double matrix_product(int n) {
    double *a = allocate(8 * (size_t)n * (size_t)n), *b = allocate(8 * (size_t)n * (size_t)n),
           *c = allocate(8 * (size_t)n * (size_t)n);
    for (int i = 0; i < n * n; ++i) a[i] = i % 5, b[i] = i % 3;
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < n; ++k)
            for (int j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
    return c[n];
}

struct body {
    double x, y, z, mass, ax, ay, az;
};

static double n_body(int n) {
    struct body* all = allocate(sizeof(struct body) * (size_t)n);
    for (int i = 0; i < n; ++i) all[i] = (struct body){sin(i), cos(i), i * 1e-3, 1, 0, 0, 0};
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
            const double dx = all[j].x - all[i].x, dy = all[j].y - all[i].y,
                         dz = all[j].z - all[i].z, r = dx * dx + dy * dy + dz * dz + 1e-9,
                         f = all[j].mass / (r * sqrt(r));
            all[i].ax += f * dx;
            all[i].ay += f * dy;
            all[i].az += f * dz;
        }
    return all[3].ax;
}

static double hash_table(long inserts) {
    const uint64_t slots = 1 << 16;
    uint64_t* keys = allocate(8 * slots);
    long probes = 0;
    for (long i = 1; i <= inserts; ++i) {
        const uint64_t key = (uint64_t)i * 0x9e3779b97f4a7c15u;
        uint64_t slot = key >> 48;
        for (int k = 0; k < 8 && keys[slot] != 0 && keys[slot] != key; ++k, ++probes)
            slot = (slot + 1) % slots;
        keys[slot] = key;
    }
    return (double)probes;
}

static double triad_in_memory(void) { return triad(1 << 20, 150); }
static double sparse(void) { return sparse_matrix_vector(100000, 10, 75); }
static double stencil(void) { return jacobi(700, 150); }
static double product(void) { return matrix_product(512); }
static double bodies(void) { return n_body(4000); }
static double hashing(void) { return hash_table(8000000); }

int main(void) {
    double (*const kernels[])(void) = {triad_in_memory, sparse, stencil, product, bodies, hashing};
    double checksum = 0;
    for (unsigned k = 0; k < sizeof kernels / sizeof *kernels; ++k) {
        const double start = seconds();
        checksum += kernels[k]();
        printf("%.4f\n", seconds() - start);
    }
    return checksum == 0;  // uses the results, so that no kernel is optimised away
}
