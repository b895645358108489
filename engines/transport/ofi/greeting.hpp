// What a rank says of its endpoint in the hello: the largest message that it receives (4 bytes),
// then the provider's address.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace assay::ofi {

struct Greeting {
    std::uint32_t largest = 0;
    std::vector<unsigned char> address;  // empty: the bytes are no greeting

    static Greeting read(std::span<const unsigned char> bytes) {
        Greeting greeting;
        if (bytes.size() <= sizeof largest) return greeting;
        std::memcpy(&greeting.largest, bytes.data(), sizeof largest);
        greeting.address.assign(bytes.begin() + sizeof largest, bytes.end());
        return greeting;
    }
    std::vector<unsigned char> bytes() const {
        std::vector<unsigned char> bytes(sizeof largest);
        std::memcpy(bytes.data(), &largest, sizeof largest);
        bytes.insert(bytes.end(), address.begin(), address.end());
        return bytes;
    }
};

}  // namespace assay::ofi
