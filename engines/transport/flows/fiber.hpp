// A function with a stack of its own, which can stop in the middle and be resumed: a rank of the
// flow transport. All fibers run in one thread; a switch takes less than a microsecond, where one
// between threads takes ten.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <utility>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace assay::flows {

class Fiber {
public:
    // `body` must not throw.
    explicit Fiber(std::function<void()> body) : body_(std::move(body)) {
        void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        stack_ = static_cast<std::byte*>(memory);
        mprotect(stack_, guard_bytes, PROT_NONE);
        getcontext(&context_);
        context_.uc_stack.ss_sp = stack_;
        context_.uc_stack.ss_size = stack_bytes;
        context_.uc_link = nullptr;
        const auto self = reinterpret_cast<std::uintptr_t>(this);
        makecontext(&context_, reinterpret_cast<void (*)()>(&enter), 2,
                    static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
    }
    ~Fiber() { munmap(stack_, stack_bytes); }
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Runs it until it stops or ends.
    void resume() { exchange(caller_, context_, stack_, stack_bytes); }
    // Called by the fiber itself: returns from resume().
    void stop() { exchange(context_, caller_, caller_stack_, caller_bytes_); }
    bool ended() const { return ended_; }

private:
    static constexpr std::size_t stack_bytes = 1 << 20, guard_bytes = 1 << 16;

    static void enter(unsigned high, unsigned low) {
        auto* self = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_bytes_);
#endif
        self->body_();
        self->ended_ = true;
        self->stop();
    }
    void exchange(ucontext_t& from, ucontext_t& to, [[maybe_unused]] const void* stack,
                  [[maybe_unused]] std::size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
        void* saved = nullptr;
        __sanitizer_start_switch_fiber(&saved, stack, bytes);
#endif
        swapcontext(&from, &to);
#ifdef __SANITIZE_ADDRESS__
        const bool in_fiber = &from == &context_;
        __sanitizer_finish_switch_fiber(saved, in_fiber ? &caller_stack_ : nullptr,
                                        in_fiber ? &caller_bytes_ : nullptr);
#endif
    }

    std::function<void()> body_;
    std::byte* stack_ = nullptr;
    const void* caller_stack_ = nullptr;
    std::size_t caller_bytes_ = 0;
    ucontext_t context_{}, caller_{};
    bool ended_ = false;
};

}  // namespace assay::flows
