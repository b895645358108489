// Emits the code that counts: for a page that was met before, the counters grow inline; the runtime
// is called for others and for ranges of several pages.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include "profile/numa/llvm/plan.hpp"
#include "profile/numa/llvm/sites.hpp"

namespace assay::numa {

// Of one function.
class Emitter {
public:
    Emitter(llvm::Function& function, Sites& sites);

    void emit(const Plan& plan, llvm::ScalarEvolution& evolution);

private:
    // Accesses to one address: sites with consecutive numbers.
    struct Spot {
        std::int64_t offset;
        unsigned first_site, sites;
        bool writes;
    };
    // A group with its addresses as values.
    struct Counted {
        const Group* group;
        llvm::Value *first, *step, *trip_count;  // step and trip_count: null outside of a loop
        std::vector<Spot> spots;                 // by offset
    };
    struct Hot {
        llvm::Value *fits, *value;  // whether inline code may count, and the shadow's value
    };

    void enter();
    Counted expand(const Group& group, llvm::SCEVExpander& expander);
    std::vector<Spot> spots_of(const Group& group);
    void count(const Counted& counted);
    Hot look_up(llvm::IRBuilder<>& builder, const Counted& counted);
    void count_inline(llvm::IRBuilder<>& builder, const Counted& counted, llvm::Value* value,
                      llvm::Value* node);
    void count_slowly(llvm::IRBuilder<>& builder, const Counted& counted);
    void count_bytes(llvm::MemIntrinsic& call);
    void count_masked(llvm::IntrinsicInst& call);
    bool count_as_one(llvm::IRBuilder<>& builder, const Counted& counted);
    void call_count(llvm::IRBuilder<>& builder, llvm::Value* address, llvm::Value* trip_count,
                    const Spot& spot);
    void call_range(llvm::IRBuilder<>& builder, llvm::Value* address, llvm::Value* step,
                    llvm::Value* trip_count, const Spot& spot);
    Spot single(const llvm::Instruction& access, bool writes);
    llvm::Value* node(const Group& group, llvm::IRBuilder<>& builder);
    void grow(llvm::IRBuilder<>& builder, llvm::Value* table, std::uint64_t offset,
              llvm::Value* index, llvm::Value* by);
    llvm::Value* site(llvm::IRBuilder<>& builder, const Spot& spot);
    llvm::Value* kinds(const Spot& spot);
    llvm::Value* after(llvm::IRBuilder<>& builder, llvm::Value* address, std::int64_t offset);
    llvm::ConstantInt* number(std::uint64_t value) {
        return llvm::ConstantInt::get(llvm::cast<llvm::IntegerType>(i64_), value);
    }

    llvm::Function& function_;
    llvm::Module& module_;
    Sites& all_sites_;
    llvm::Type *i8_, *i32_, *i64_;
    llvm::PointerType* bytes_;
    llvm::FunctionCallee count_, range_, thread_;
    llvm::Value *own_ = nullptr, *sites_ = nullptr, *processor_ = nullptr;  // set by enter()
    llvm::DenseMap<const void*, llvm::Value*> nodes_;                       // by region
};

}  // namespace assay::numa
