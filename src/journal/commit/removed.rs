//! Segments that someone else removed from under the writer.

use super::{Active, Core};
use crate::journal::segment::SegmentInfo;

impl Core {
    /// Takes the records of a segment that was removed from under the writer out of the count, and those of the older
    /// ones that went with it. They are told with the next commit.
    pub(super) fn left_behind(&mut self, active: &Active) {
        self.forget_removed(active.id.first_seq);
        if active.len > 0 {
            self.lose(active.id.first_seq, self.next_seq - 1);
        }
        // What stands in its place counts for the space.
        let path = self.folder.join(active.id.to_string());
        if let Ok(Some(_)) = self.disk.identity(&path) {
            self.sealed.push_back(SegmentInfo { id: active.id, bytes: active.len, modified: active.modified });
        }
    }

    /// Forgets sealed segments that are not there any more; `after` is the first number behind them.
    pub(super) fn forget_removed(&mut self, after: u64) {
        let ends: Vec<u64> = self.sealed.iter().skip(1).map(|s| s.id.first_seq).chain([after]).collect();
        let sealed = std::mem::take(&mut self.sealed);
        for (info, end) in sealed.into_iter().zip(ends) {
            match self.disk.identity(&self.folder.join(info.id.to_string())) {
                // A segment that was left empty-handed has the number of its successor, and no record.
                Ok(None) if end > info.id.first_seq => self.lose(info.id.first_seq, end - 1),
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => self.sealed.push_back(info),
            }
        }
    }

    fn lose(&mut self, from: u64, to: u64) {
        if from <= to {
            self.removed = self.removed.saturating_add((to - from).saturating_add(1));
            self.losses.removed(from, to);
        }
    }
}
