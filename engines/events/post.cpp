#include "events/post.hpp"

namespace assay::events {

void Post::mail(int peer, int tag, std::shared_ptr<const Bytes> message) {
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(mail_.size()));
        mail_.emplace_back();
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    mail_[index] = std::move(message);
    ++mails_;
    send(mail_[index]->data(), mail_[index]->size(), tag, {Doing::mail, peer, index});
}

}  // namespace assay::events
