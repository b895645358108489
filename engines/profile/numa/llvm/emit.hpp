// Emits the counting code. For a page that has a shadow value, inline code increments the counters.
// It calls the runtime for the first access to a page and for ranges of several pages.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include "profile/numa/llvm/plan.hpp"
#include "profile/numa/llvm/sites.hpp"

namespace assay::numa {

// Instruments one function.
class Emitter {
public:
    Emitter(llvm::Function& function, Sites& sites);

    void emit(const Plan& plan, llvm::ScalarEvolution& evolution);

private:
    // The accesses of a group at one offset. Their sites have consecutive numbers.
    struct AddressSites {
        std::int64_t offset;
        unsigned first_site, sites;
        bool writes;
    };
    // A group whose addresses are expanded to LLVM values.
    struct ExpandedGroup {
        const Group* group;
        llvm::Value *first, *step, *trip_count;   // step, trip_count: null outside of loops
        std::vector<AddressSites> address_sites;  // sorted by offset
    };
    struct FastPath {
        llvm::Value *is_fast, *value;  // value: of the shadow memory
    };

    void emit_prologue();
    ExpandedGroup expand(const Group& group, llvm::SCEVExpander& expander);
    std::vector<AddressSites> collect_address_sites(const Group& group);
    void count_group(const ExpandedGroup& expanded);
    FastPath emit_fast_path_check(llvm::IRBuilder<>& builder, const ExpandedGroup& expanded);
    void count_inline(llvm::IRBuilder<>& builder, const ExpandedGroup& expanded, llvm::Value* value,
                      llvm::Value* node);
    void call_runtime(llvm::IRBuilder<>& builder, const ExpandedGroup& expanded);
    void count_bytes(llvm::MemIntrinsic& call);
    void count_masked(llvm::IntrinsicInst& call);
    bool count_unrolled(llvm::IRBuilder<>& builder, const ExpandedGroup& expanded);
    void call_count(llvm::IRBuilder<>& builder, llvm::Value* address, llvm::Value* trip_count,
                    const AddressSites& address_sites);
    void call_range(llvm::IRBuilder<>& builder, llvm::Value* address, llvm::Value* step,
                    llvm::Value* trip_count, const AddressSites& address_sites);
    AddressSites single_site(const llvm::Instruction& access, bool writes);
    llvm::Value* node(const Group& group, llvm::IRBuilder<>& builder);
    void increment(llvm::IRBuilder<>& builder, llvm::Value* table, std::uint64_t offset,
                   llvm::Value* index, llvm::Value* by);
    llvm::Value* site(llvm::IRBuilder<>& builder, const AddressSites& address_sites);
    llvm::Value* packed_count(const AddressSites& address_sites);
    llvm::Value* add_offset(llvm::IRBuilder<>& builder, llvm::Value* address, std::int64_t offset);
    llvm::ConstantInt* number(std::uint64_t value) {
        return llvm::ConstantInt::get(llvm::cast<llvm::IntegerType>(i64_), value);
    }

    llvm::Function& function_;
    llvm::Module& module_;
    Sites& site_table_;
    llvm::Type *i8_, *i32_, *i64_;
    llvm::PointerType* bytes_;
    llvm::FunctionCallee count_, range_, thread_;
    llvm::Value *thread_counts_ = nullptr, *sites_ = nullptr,
                *processor_ = nullptr;                 // set by emit_prologue()
    llvm::DenseMap<const void*, llvm::Value*> nodes_;  // by region
    const llvm::DenseMap<const void*, const void*>* previous_regions_ = nullptr;  // of the plan
};

}  // namespace assay::numa
