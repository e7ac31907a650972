/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a device is: its network device, address and GUID.  Nothing is opened, so the answer is the
 * same while another process has the device.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/addr.h"
#include "io/netdev.h"

/* Finds the address that the port will have, and the name of its network device. */
static int find_address(const struct dp_spec *spec, struct dp_addr *addr, char *name, size_t len,
			struct dp_error *error)
{
	struct dp_addr wanted = { 0 };
	int err = dp_netdev_find(spec->where, addr, name, len, error);

	if (err != -EINVAL)
		return err;
	for (int i = 0; i < spec->n_options; i++)
		if (!strcmp(spec->option[i].key, "ip"))
			dp_addr_parse(spec->option[i].value, &wanted);
	snprintf(name, len, "%s", spec->where);
	return dp_netdev_address(name, &wanted, addr, error);
}

int front_find_place(const struct front_device *d, struct dp_port_info *out)
{
	char text[256], name[sizeof(out->netdev)];
	struct dp_error error = { text, sizeof(text) };
	struct dp_spec spec;
	int err;

	memset(out, 0, sizeof(*out));
	err = dp_spec_parse(d->config.spec, &spec, &error);
	if (!err)
		err = find_address(&spec, &out->addr, name, sizeof(name), &error);
	if (err)
		return err;
	snprintf(out->kind, sizeof(out->kind), "%s", spec.kind);
	return dp_netdev_query(name, out, &error);
}

/*
 * Returns the modified EUI-64 of the network device's MAC.  For a device without a MAC (loopback),
 * a local MAC is made of its address.
 */
__be64 front_guid_of(const struct dp_port_info *info)
{
	uint8_t mac[6], guid[8];
	__be64 out;

	memcpy(mac, info->mac, sizeof(mac));
	if (!memcmp(mac, "\0\0\0\0\0", sizeof(mac))) {
		mac[0] = 2;
		memcpy(mac + 2, info->addr.b + 12, 4);
	}
	memcpy(guid, mac, 3);
	guid[0] ^= 2;
	guid[3] = 0xff;
	guid[4] = 0xfe;
	memcpy(guid + 5, mac + 3, 3);
	memcpy(&out, guid, sizeof(out));
	return out;
}

/* A virtual device reports no rate, as only the CPU limits it.  Such a device gets 40 Gbit/s. */
uint64_t front_rate_bps(const struct dp_port_info *info)
{
	return info->line_rate_bps ? info->line_rate_bps : UINT64_C(40000000000);
}

__be64 front_device_guid(const struct front_device *d)
{
	struct dp_port_info info;

	return front_find_place(d, &info) ? 0 : front_guid_of(&info);
}
