// Reads the Python functions that a CPython interpreter runs inside its C frames.
//
// The frames are read in place, from the calling thread's state outwards, without a call of the
// interpreter and without the GIL. python.cpp holds the structure layouts of the supported
// versions. Only the thread itself changes its chain of frames, but not always between calls of
// hooked functions: greenlet overwrites the C stack, frees the copy, and then restores the thread's
// state. Until then the state points to frames that are gone. So no pointer is followed before a
// check that its target can be read (readable.hpp) and, for an object, that it has the right type;
// an event whose chain is broken has its C frames alone. A node of the stack tree refers to a
// function and line by a number, which is recorded once as a text. The cost is about 15 ns per
// event.
//
// Texts of Kind::python hold lines:
//
//     place NUMBER LINE FILE<tab>FUNCTION    the meaning of a frame's number (python_nodes.hpp)
//     eval ADDRESS                           a C frame that runs Python frames; hexadecimal
//     unread VERSION                         an interpreter whose frames cannot be read
#pragma once

#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profile/heap/python_nodes.hpp"
#include "profile/stack/readable.hpp"
#include "profile/stack/stack_cache.hpp"
#include "profile/stack/tree.hpp"
#include "profile/stack/unwinder.hpp"
#include "profile/stack/walk.hpp"

namespace assay::heap {

struct Thread;

// Whether an interpreter is loaded whose frames can be read; whether one is loaded but not
// relocated yet.
extern std::atomic<bool> python_ready, python_pending;

// Checks whether an object is an interpreter. Called for each loaded object whenever the list of
// objects is recorded or an interpreter is pending; by one thread at a time.
void detect_python(const dl_phdr_info& object);
// Records the version of an interpreter whose frames cannot be read.
void report_unsupported_python(Thread& thread);
// Called around the unloading of an object, which may be the interpreter.
void pause_python();
void resume_python();
// Prepares for a new arena: all texts are recorded again.
void reset_python();
void forget_eval_frames();  // the part of it that concerns the frames

// Returns the stack `native` joined with the Python frames that the thread runs in it; `native` if
// there are none. `extension`: that of `native` in the unwinder's memo, or null.
__attribute__((noinline)) stack::StackId add_python_frames(Thread& thread, stack::StackId native,
                                                           stack::Extension* extension);

// Caches the last chain of Python frames of one thread, since mostly only the innermost frames
// change from event to event. It is in zeroed memory, which becomes resident as it fills.
class PythonFrames {
public:
    // The stack `native` joined with the Python frames from `innermost` outwards; `native` if the
    // frames cannot be read or the tree is full.
    stack::StackId join_stacks(Thread& thread, stack::StackId native, stack::Extension* extension,
                               std::uint64_t innermost);
    // Records the frames of the last walked C stack that run Python frames, unless they are already
    // recorded.
    void record_eval_frames(Thread& thread, const stack::StackCache& cache, std::uint64_t state);
    // Clears the caches if the unwinder's generation has changed, or memory may have been unmapped.
    void sync(std::uint32_t generation);
    // The thread's innermost frame; 0 if it runs none.
    std::uint64_t innermost_frame(std::uint64_t state);

    std::uint64_t last_state = 0;  // the thread's PyThreadState

private:
    static constexpr std::uint32_t max_frames = 4096, max_search_frames = 16;
    static constexpr unsigned step_bits = 14, joined_bits = 10;
    static constexpr std::size_t text_room = 2048;

    struct CachedFrame {
        std::uint64_t frame, instruction, code;
        std::uint64_t identity;  // of the code object (compute_identity); no_identity: no function
        stack::StackId id;
        std::uint32_t flag;
    };
    struct Step {  // a step inwards from a stack to an instruction of a function
        std::uint64_t key;
        stack::StackId parent, id;
    };
    struct JoinedStack {  // a C stack with a step to the innermost frame
        std::uint64_t key;
        stack::StackId python, id;
    };

    bool has_only_line_changed(std::uint64_t innermost);
    bool update_frames(Thread& thread, std::uint64_t innermost);
    std::uint32_t walk_to_cached(std::uint64_t frame);
    bool can_read_frame(std::uint64_t frame);
    bool compare_cached(std::uint32_t first_cached, std::uint32_t& unchanged_frames) const;
    bool push(std::uint64_t frame, bool was_cached);
    std::uint64_t step_key(const CachedFrame& cached_frame, const CachedFrame& outer) const;
    stack::StackId step(Thread& thread, const CachedFrame& cached_frame, const CachedFrame& outer);
    stack::StackId record_line(Thread& thread, std::uint64_t code, std::uint64_t instruction);
    std::uint64_t next_c_frame(std::uint64_t& cframe, std::uint32_t& index,
                               const stack::Bounds& bounds);

    stack::ReadablePages pages_;
    std::uint32_t generation_ = 0;
    std::uint32_t depth_ = 0;  // cached frames
    std::uint32_t chain_length_ = 0;
    CachedFrame cached_[max_frames + 1];  // [1] is the outermost frame; [0] stays zero
    std::uint64_t chain_[max_frames];     // frames that are not cached, innermost first
    Step steps_[1 << step_bits];
    JoinedStack joined_stacks_[1 << joined_bits];
    char text_[text_room];
};

}  // namespace assay::heap
