// Merges ranges of bytes into records with a stride (range_records.hpp).
#include "storage/accelerator/range_records.hpp"

namespace assay::storage {

void RangeRecords::add(std::uint32_t file, std::uint32_t generation, std::uint64_t sequence,
                       std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t length = end - begin;
    if (!records_.empty()) {
        Record& last = records_.back();
        const bool continues = last.file == file && last.generation == generation &&
                               last.sequence == sequence && last.length == length &&
                               begin >= last.begin + length;
        if (continues && last.count == 1) {
            last.stride = begin - last.begin, last.count = 2;
            return;
        }
        if (continues && begin == last.begin + last.count * last.stride) {
            ++last.count;
            return;
        }
    }
    Record record{};
    record.sequence = sequence;
    record.file = file;
    record.generation = generation;
    record.begin = begin;
    record.length = record.stride = length;
    record.count = 1;
    record.kind = static_cast<std::uint64_t>(kind_);
    records_.push_back(record);
}

}  // namespace assay::storage
