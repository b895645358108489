// Reads the link modes of an Ethernet adapter and finds the fastest (see ethtool.hpp).
#include "core/ethtool.hpp"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace assay {
namespace {

// The link modes (bit numbers of linux/ethtool.h) of one speed.
struct LinkModes {
    double bits_per_second;
    std::span<const std::uint8_t> bits;
};

constexpr std::array<std::uint8_t, 2> modes_10m = {ETHTOOL_LINK_MODE_10baseT_Half_BIT,
                                                   ETHTOOL_LINK_MODE_10baseT_Full_BIT};
constexpr std::array<std::uint8_t, 2> modes_100m = {ETHTOOL_LINK_MODE_100baseT_Half_BIT,
                                                    ETHTOOL_LINK_MODE_100baseT_Full_BIT};
constexpr std::array<std::uint8_t, 4> modes_1g = {
    ETHTOOL_LINK_MODE_1000baseT_Half_BIT, ETHTOOL_LINK_MODE_1000baseT_Full_BIT,
    ETHTOOL_LINK_MODE_1000baseKX_Full_BIT, ETHTOOL_LINK_MODE_1000baseX_Full_BIT};
constexpr std::array<std::uint8_t, 2> modes_2500m = {ETHTOOL_LINK_MODE_2500baseX_Full_BIT,
                                                     ETHTOOL_LINK_MODE_2500baseT_Full_BIT};
constexpr std::array<std::uint8_t, 1> modes_5g = {ETHTOOL_LINK_MODE_5000baseT_Full_BIT};
constexpr std::array<std::uint8_t, 9> modes_10g = {
    ETHTOOL_LINK_MODE_10000baseT_Full_BIT,  ETHTOOL_LINK_MODE_10000baseKX4_Full_BIT,
    ETHTOOL_LINK_MODE_10000baseKR_Full_BIT, ETHTOOL_LINK_MODE_10000baseR_FEC_BIT,
    ETHTOOL_LINK_MODE_10000baseCR_Full_BIT, ETHTOOL_LINK_MODE_10000baseSR_Full_BIT,
    ETHTOOL_LINK_MODE_10000baseLR_Full_BIT, ETHTOOL_LINK_MODE_10000baseLRM_Full_BIT,
    ETHTOOL_LINK_MODE_10000baseER_Full_BIT};
constexpr std::array<std::uint8_t, 3> modes_25g = {ETHTOOL_LINK_MODE_25000baseCR_Full_BIT,
                                                   ETHTOOL_LINK_MODE_25000baseKR_Full_BIT,
                                                   ETHTOOL_LINK_MODE_25000baseSR_Full_BIT};
constexpr std::array<std::uint8_t, 4> modes_40g = {
    ETHTOOL_LINK_MODE_40000baseKR4_Full_BIT, ETHTOOL_LINK_MODE_40000baseCR4_Full_BIT,
    ETHTOOL_LINK_MODE_40000baseSR4_Full_BIT, ETHTOOL_LINK_MODE_40000baseLR4_Full_BIT};
constexpr std::array<std::uint8_t, 8> modes_50g = {
    ETHTOOL_LINK_MODE_50000baseCR2_Full_BIT,      ETHTOOL_LINK_MODE_50000baseKR2_Full_BIT,
    ETHTOOL_LINK_MODE_50000baseSR2_Full_BIT,      ETHTOOL_LINK_MODE_50000baseKR_Full_BIT,
    ETHTOOL_LINK_MODE_50000baseSR_Full_BIT,       ETHTOOL_LINK_MODE_50000baseCR_Full_BIT,
    ETHTOOL_LINK_MODE_50000baseLR_ER_FR_Full_BIT, ETHTOOL_LINK_MODE_50000baseDR_Full_BIT};
constexpr std::array<std::uint8_t, 4> modes_56g = {
    ETHTOOL_LINK_MODE_56000baseKR4_Full_BIT, ETHTOOL_LINK_MODE_56000baseCR4_Full_BIT,
    ETHTOOL_LINK_MODE_56000baseSR4_Full_BIT, ETHTOOL_LINK_MODE_56000baseLR4_Full_BIT};
constexpr std::array<std::uint8_t, 14> modes_100g = {
    ETHTOOL_LINK_MODE_100000baseKR4_Full_BIT, ETHTOOL_LINK_MODE_100000baseSR4_Full_BIT,
    ETHTOOL_LINK_MODE_100000baseCR4_Full_BIT, ETHTOOL_LINK_MODE_100000baseLR4_ER4_Full_BIT,
    ETHTOOL_LINK_MODE_100000baseKR2_Full_BIT, ETHTOOL_LINK_MODE_100000baseSR2_Full_BIT,
    ETHTOOL_LINK_MODE_100000baseCR2_Full_BIT, ETHTOOL_LINK_MODE_100000baseLR2_ER2_FR2_Full_BIT,
    ETHTOOL_LINK_MODE_100000baseDR2_Full_BIT, ETHTOOL_LINK_MODE_100000baseKR_Full_BIT,
    ETHTOOL_LINK_MODE_100000baseSR_Full_BIT,  ETHTOOL_LINK_MODE_100000baseLR_ER_FR_Full_BIT,
    ETHTOOL_LINK_MODE_100000baseCR_Full_BIT,  ETHTOOL_LINK_MODE_100000baseDR_Full_BIT};
constexpr std::array<std::uint8_t, 10> modes_200g = {
    ETHTOOL_LINK_MODE_200000baseKR4_Full_BIT,
    ETHTOOL_LINK_MODE_200000baseSR4_Full_BIT,
    ETHTOOL_LINK_MODE_200000baseLR4_ER4_FR4_Full_BIT,
    ETHTOOL_LINK_MODE_200000baseDR4_Full_BIT,
    ETHTOOL_LINK_MODE_200000baseCR4_Full_BIT,
    ETHTOOL_LINK_MODE_200000baseKR2_Full_BIT,
    ETHTOOL_LINK_MODE_200000baseSR2_Full_BIT,
    ETHTOOL_LINK_MODE_200000baseLR2_ER2_FR2_Full_BIT,
    ETHTOOL_LINK_MODE_200000baseDR2_Full_BIT,
    ETHTOOL_LINK_MODE_200000baseCR2_Full_BIT};
constexpr std::array<std::uint8_t, 10> modes_400g = {
    ETHTOOL_LINK_MODE_400000baseKR8_Full_BIT,
    ETHTOOL_LINK_MODE_400000baseSR8_Full_BIT,
    ETHTOOL_LINK_MODE_400000baseLR8_ER8_FR8_Full_BIT,
    ETHTOOL_LINK_MODE_400000baseDR8_Full_BIT,
    ETHTOOL_LINK_MODE_400000baseCR8_Full_BIT,
    ETHTOOL_LINK_MODE_400000baseKR4_Full_BIT,
    ETHTOOL_LINK_MODE_400000baseSR4_Full_BIT,
    ETHTOOL_LINK_MODE_400000baseLR4_ER4_FR4_Full_BIT,
    ETHTOOL_LINK_MODE_400000baseDR4_Full_BIT,
    ETHTOOL_LINK_MODE_400000baseCR4_Full_BIT};

constexpr std::array<LinkModes, 12> fastest_first = {{{400e9, modes_400g},
                                                      {200e9, modes_200g},
                                                      {100e9, modes_100g},
                                                      {56e9, modes_56g},
                                                      {50e9, modes_50g},
                                                      {40e9, modes_40g},
                                                      {25e9, modes_25g},
                                                      {10e9, modes_10g},
                                                      {5e9, modes_5g},
                                                      {2.5e9, modes_2500m},
                                                      {1e9, modes_1g},
                                                      {100e6, modes_100m}}};

bool has_mode(std::span<const std::uint32_t> modes, std::uint8_t bit) {
    return bit / 32U < modes.size() && (modes[bit / 32U] >> (bit % 32U) & 1U) != 0;
}

constexpr int max_words = 32;  // of 32 bits each, so 1,024 modes; Linux 6.1 has 93

// A request has a header, then space for three masks that the kernel fills in: the supported modes,
// the advertised modes, and the modes that the link partner advertises.
constexpr std::size_t header_words = sizeof(ethtool_link_settings) / sizeof(std::uint32_t);
using Request = std::array<std::uint32_t, header_words + 3 * max_words>;

// Requests masks of `mask_words` words. Returns the number of words in the answer; none if the
// driver refuses.
std::optional<int> request_link_modes(int socket, const std::string& interface, Request& request,
                                      int mask_words) {
    request = {};
    auto* header = reinterpret_cast<ethtool_link_settings*>(request.data());
    header->cmd = ETHTOOL_GLINKSETTINGS;
    header->link_mode_masks_nwords = static_cast<std::int8_t>(mask_words);
    ifreq ioctl_request{};
    std::strncpy(ioctl_request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
    ioctl_request.ifr_data = reinterpret_cast<char*>(request.data());
    if (ioctl(socket, SIOCETHTOOL, &ioctl_request) != 0) return std::nullopt;
    return header->link_mode_masks_nwords;
}

}  // namespace

std::optional<double> fastest_of(std::span<const std::uint32_t> modes) {
    for (const LinkModes& speed : fastest_first)
        for (const std::uint8_t bit : speed.bits)
            if (has_mode(modes, bit)) return speed.bits_per_second;
    for (const std::uint8_t bit : modes_10m)
        if (has_mode(modes, bit)) return 10e6;
    return std::nullopt;
}

std::optional<double> fastest_link_mode(const std::string& interface) {
    if (std::getenv("ASSAY_ROOT") != nullptr || interface.size() >= IFNAMSIZ) return std::nullopt;
    const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return std::nullopt;
    Request request;
    std::optional<double> fastest;
    // To a request with 0 words the kernel answers with its own number of mask words, negated.
    const int mask_words = -request_link_modes(socket, interface, request, 0).value_or(0);
    if (mask_words > 0 && mask_words <= max_words &&
        request_link_modes(socket, interface, request, mask_words) == mask_words)
        fastest = fastest_of(
            std::span<const std::uint32_t>(request).subspan(header_words, std::size_t(mask_words)));
    close(socket);
    return fastest;
}

}  // namespace assay
