// Python's functions: what an interpreter of CPython runs inside of its own C frames.
//
// The frames are read where they lie, as the interpreter's version lays them out (python.cpp has
// the table): from the calling thread's own state outwards, without the interpreter's help and
// without its lock. That is sound since only the thread itself changes its chain of frames, and
// only between calls of what is hooked; the chain is whole whenever one of these is called. A frame
// names its function and line by a number, which is looked up once and told in a text. It takes
// some 15 ns an event.
//
// Texts of Kind::python hold lines:
//     place NUMBER LINE FILE<tab>FUNCTION    what a number in a frame's node stands for
//                                            (python_nodes.hpp)
//     eval ADDRESS                           of a C frame that runs Python frames; hexadecimal
//     unread VERSION                         an interpreter is loaded whose frames are not
//                                            understood
#pragma once

#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profile/heap/python_nodes.hpp"
#include "profile/stack/stack_cache.hpp"
#include "profile/stack/tree.hpp"
#include "profile/stack/unwinder.hpp"
#include "profile/stack/walk.hpp"

namespace assay::heap {

struct Thread;

// Whether an interpreter is loaded that can be read; or one is, and its loader has not finished
// with it.
extern std::atomic<bool> reads_python, awaits_python;

// Is told of each loaded object whenever their list is written down, or an interpreter is awaited;
// by one thread at a time.
void look_for_python(const dl_phdr_info& object);
// Writes down what has been found, where that is not told by frames.
void tell_of_python(Thread& thread);
// Around the unloading of an object, which may be the interpreter.
void leave_python();
void return_to_python();
// In the child of a fork, whose trace is one of its own.
void restart_python();

// The stack number of `native` and the Python frames that the thread is running in it; `native`
// where there are none. `note`: native's, if it has one.
__attribute__((noinline)) stack::StackId with_python(Thread& thread, stack::StackId native,
                                                     stack::Extension* note);

// The Python frames of one thread: the last chain, frame by frame, of which mostly only the
// innermost ones change. In zeroed memory of its own, touched as it fills.
class PythonFrames {
public:
    // The number of the stack `native` with the Python frames from `innermost` outwards; `native`
    // when the tree is full.
    stack::StackId join(Thread& thread, stack::StackId native, stack::Extension* note,
                        std::uint64_t innermost);
    // Of the C stack that has just been followed, those frames that run Python, where that is new.
    void learn(Thread& thread, const stack::StackCache& cache, std::uint64_t state);
    // What was learned for another tree holds no more.
    void keep_to(std::uint32_t generation);

    std::uint64_t last_state = 0;  // of the thread, as the interpreter has told it

private:
    static constexpr std::uint32_t most_frames = 4096, nearby = 16;
    static constexpr unsigned step_bits = 14, joined_bits = 10;
    static constexpr std::size_t text_room = 2048;

    struct Mark {
        std::uint64_t frame, instruction, code,
            identity;  // identity: of what the code object is; nobody for none's
        stack::StackId id;
        std::uint32_t flag;
    };
    struct Step {  // inwards, to a function at an instruction
        std::uint64_t key;
        stack::StackId parent, id;
    };
    struct Joined {         // a step to the innermost frame, in a C stack
        std::uint64_t all;  // that decides it, hashed
        stack::StackId python, id;
    };

    bool has_only_moved_on(std::uint64_t innermost);
    bool follow(Thread& thread, std::uint64_t innermost);
    std::uint32_t walk_to_known(std::uint64_t at);
    bool compare(std::uint32_t from, std::uint32_t& same) const;
    bool push(std::uint64_t frame, bool was_there);
    std::uint64_t key_of(const Mark& mark, const Mark& outer) const;
    stack::StackId step(Thread& thread, const Mark& mark, const Mark& outer);
    stack::StackId name_place(Thread& thread, std::uint64_t code, std::uint64_t instruction);
    std::uint64_t c_frame(std::uint64_t& cframe, std::uint32_t& mark,
                          const stack::Bounds& bounds) const;

    std::uint32_t generation_ = 0;
    std::uint32_t n_ = 0, taken_ = 0;
    Mark marks_[most_frames +
                1];  // the outermost is marks_[1]; that before it is none, and stays zero
    std::uint64_t chain_[most_frames];  // frames that are not among the marks, the innermost first
    Step steps_[1 << step_bits];
    Joined joined_[1 << joined_bits];
    char text_[text_room];
};

}  // namespace assay::heap
