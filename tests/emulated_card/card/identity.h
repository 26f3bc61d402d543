/* Who the devices are, as CUDA and NVML both tell: CUDA numbers those that CUDA_VISIBLE_DEVICES leaves, NVML all. */
#pragma once

int card_visible_devices(void);
/* The physical number of CUDA's device. */
int card_physical(int device);
void card_uuid(int physical, unsigned char uuid[16]);
/* Of the MIG slice, where there is one; else the device's. */
void card_cuda_uuid(int physical, unsigned char uuid[16]);
/* 0000:3b:00.0, in NVML's and CUDA's way of writing. text: 16 bytes. */
void card_pci_bus_id(int physical, char *text);
int card_by_pci_bus_id(const char *text);
/* `GPU-` or `MIG-`, then 8-4-4-4-12 digits. text: 48 bytes. */
void card_uuid_text(const char *kind, const unsigned char uuid[16], char *text);
