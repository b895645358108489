// Starts an engine that is built for an ABI of MPI, not for an MPI: loads the site's MPI library,
// then the engine, which is a library of this program's name beside it (assay-probe-mpich:
// libassay-probe-mpich.so) and has a main().
//
// $ASSAY_MPI_LIBRARY is the path that the launcher belongs to. Without it, or on a host that has no
// such file, the dynamic linker searches as for any MPI program: $LD_LIBRARY_PATH, as environment
// modules set it, and its cache. It is C, so that no C++ library is here before the MPI's.
#define _GNU_SOURCE  // dladdr
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef ASSAY_OPEN_MPI
static const char* const sonames[] = {"libmpi.so.40"};
static const char family[] = "Open MPI";
#else
// Debian's MPICH is the second; Cray's is the third, unless the module cray-mpich-abi is loaded.
static const char* const sonames[] = {"libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12"};
static const char family[] = "MPICH's ABI (MPICH, Intel MPI, MVAPICH, Cray MPICH)";
#endif
enum { unusable = 2 };

static const char* program = "assay";

static int fail(const char* what, const char* detail, const char* fix) {
    fprintf(stderr, "%s: %s%s%s; fix: %s\n", program, what, *detail ? ": " : "", detail, fix);
    return unusable;
}

// Loads an MPI library, so that the engine finds its functions. Returns NULL if there is none;
// dlerror() of the first that was tried is in `reason`.
static void* load_mpi(char* reason, size_t bytes) {
    const char* given = getenv("ASSAY_MPI_LIBRARY");
    if (given != NULL && access(given, R_OK) == 0) {
        void* library = dlopen(given, RTLD_NOW | RTLD_GLOBAL);
        if (library == NULL) snprintf(reason, bytes, "%s", dlerror());
        return library;
    }
    for (size_t i = 0; i < sizeof sonames / sizeof *sonames; ++i) {
        void* library = dlopen(sonames[i], RTLD_NOW | RTLD_GLOBAL);
        if (library != NULL) return library;
        if (i == 0) snprintf(reason, bytes, "%s", dlerror());
    }
    return NULL;
}

// A library that is shorter than its headers say, of a copy that was interrupted, ends the process
// by SIGBUS.
static void on_damage(int signal) {
    (void)signal;
    const char text[] = ": a library of MPI or of Assay is damaged; fix: install it again\n";
    if (write(STDERR_FILENO, program, strlen(program)) < 0 ||
        write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(unusable);
    _exit(unusable);
}

static int is_of_this_abi(void* library) {
    const int is_open_mpi = dlsym(library, "ompi_mpi_comm_world") != NULL;
#ifdef ASSAY_OPEN_MPI
    return is_open_mpi;
#else
    return !is_open_mpi && dlsym(library, "MPI_Init_thread") != NULL;
#endif
}

// Prints the path of the MPI library and the first line of its version, which MPI tells before
// MPI_Init.
static int print_library(void* library) {
    int (*version)(char*, int*);
    *(void**)&version = dlsym(library, "MPI_Get_library_version");
    char text[8192] = "";  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH
    int length = 0;
    Dl_info info = {0};
    if (version != NULL && version(text, &length) == 0) text[strcspn(text, "\n,")] = 0;
    for (char* c = text; *c != 0; ++c)
        if (*c == '\t') *c = ' ';
    dladdr(*(void**)&version, &info);
    printf("%s: %s\n", info.dli_fname != NULL ? info.dli_fname : "?", text);
    return 0;
}

int main(int argc, char** argv) {
    static char self[PATH_MAX], copy[PATH_MAX], engine[PATH_MAX + 32], reason[512];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) return fail("/proc is not mounted", "", "mount it");
    memcpy(copy, self, sizeof copy);
    program = basename(self);
    snprintf(engine, sizeof engine, "%s/lib%s.so", dirname(copy), program);
    signal(SIGBUS, on_damage);
    void* const mpi = load_mpi(reason, sizeof reason);
    // An engine describes itself without MPI.
    const int describes = argc > 1 && strcmp(argv[1], "--describe") == 0;
    if (mpi == NULL && !describes) {
        char what[128];
        snprintf(what, sizeof what, "no library of %s can be loaded", family);
        return fail(what, reason, "load the site's module of that MPI on all hosts");
    }
    if (mpi != NULL && !is_of_this_abi(mpi)) {
        char what[128];
        snprintf(what, sizeof what, "the MPI library is not of %s", family);
        const char* given = getenv("ASSAY_MPI_LIBRARY");
        return fail(what, given != NULL ? given : sonames[0],
                    "name another launcher with --launcher");
    }
    if (argc > 1 && strcmp(argv[1], "--mpi-library") == 0) return print_library(mpi);
    void* const module = dlopen(engine, RTLD_LAZY | RTLD_LOCAL);
    if (module == NULL)
        return fail("the engine cannot be loaded", dlerror(), "install Assay again");
    signal(SIGBUS, SIG_DFL);
    int (*engine_main)(int, char**);
    *(void**)&engine_main = dlsym(module, "main");
    if (engine_main == NULL) return fail("the engine is damaged", engine, "install Assay again");
    return engine_main(argc, argv);
}
