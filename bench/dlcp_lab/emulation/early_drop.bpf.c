// Early drops by drop precedence on a switch output: a classifier of tc that counts each queue's
// bytes. early_drop.py defines the names in capitals and compiles this file for each link rate.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct profile {
	__u32 queue;
	__u32 most; // queue length in bytes from which the packet is dropped; 0: never early
};

static const struct profile profiles[64] = PROFILES; // by DSCP
static const __u32 limits[QUEUES] = LIMITS;          // bytes of each queue, most urgent first

struct port {
	__u64 at;             // ns of the last packet
	__u64 length[QUEUES]; // bytes in a queue and in all queues served before it
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port);
} state SEC(".maps");

// The queue's lock is held: htb classifies one packet at a time.
SEC("tc") int early_drop(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 zero = 0, queue = QUEUES - 1, most = 0;
	struct port *port = bpf_map_lookup_elem(&state, &zero);

	if (!port)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP) && (void *)(ip + 1) <= end) {
		const struct profile *found = &profiles[ip->tos >> 2];

		queue = found->queue;
		most = found->most;
	}

	__u64 now = bpf_ktime_get_ns(), past = now - port->at;
	__u64 drained = past < LONGEST ? past * BYTES_PER_SECOND / 1000000000ULL : ~0ULL;
	_Bool drop = 0;

	port->at = now;
#pragma unroll
	for (int i = 0; i < QUEUES; i++) {
		__u64 length = port->length[i] > drained ? port->length[i] - drained : 0;

		if (i == queue)
			drop = most && length >= most;
		// Dropped packets do not count, whether early or at a full buffer.
		if (i >= queue && !drop && length + skb->len <= limits[i])
			length += skb->len;
		port->length[i] = length;
	}
	return drop ? TO_DROP + queue : 0; // a class that holds no packet; 0: the next filter decides
}

char LICENSE[] SEC("license") = "GPL";
