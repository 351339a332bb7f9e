"""What people paste into the page, and which archs it names: () for none, several where the page has to ask.

Lines are as rocminfo, lspci, vulkaninfo, glxinfo, Windows, shops and /proc/cpuinfo write them.
"""

LSPCI = "{} compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] {} (rev c8)"
VGA, DISPLAY, PROCESSING = "03:00.0 VGA", "c4:00.0 Display", "05:00.0 Processing accelerators"


def lspci(device, kind=VGA):
    return LSPCI.format(kind, device)


PASTED = {
    # What the page's own hint prints.
    "  Name:                    gfx1100": "gfx1100",
    "Name: gfx1100": "gfx1100",
    "amdgcn-amd-amdhsa--gfx1100": "gfx1100",
    "gfx942:sramecc+:xnack-": "gfx942",
    "      Name:                    amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-": "gfx90a",
    "  Name: gfx1100   Name: amdgcn-amd-amdhsa--gfx1100   Name: amdgcn-amd-amdhsa--gfx11-generic": "gfx1100",
    "Name: gfx1100 Name: amdgcn-amd-amdhsa--gfx1100 Name: gfx1036": ("gfx1100", "gfx1036"),
    "HSA_OVERRIDE_GFX_VERSION=10.3.0 gfx1031": "gfx1031",
    "gfx1103_r1": "gfx1103",
    "amdgcn-amd-amdhsa--gfx11-generic": (),
    "gfx99999": (),
    # lspci
    lspci("Navi 31 [Radeon RX 7900 XT/7900 XTX]"): "gfx1100",
    lspci("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]"): "gfx1100",
    lspci("Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]"): "gfx1030",
    lspci("Navi 22 [Radeon RX 6700/6700 XT/6750 XT / 6800M/6850M XT]"): "gfx1031",
    lspci("Navi 23 [Radeon RX 6600/6600 XT/6600M]"): "gfx1032",
    lspci("Navi 33 [Radeon RX 7600/7600 XT/7600M XT/7600S/7700S / PRO W7600]"): "gfx1102",
    lspci("Navi 48 [Radeon RX 9070/9070 XT/9070 GRE]"): "gfx1201",
    lspci("Navi 12 [Radeon Pro 5600M/V520/BC-160]"): "gfx1011",
    lspci("Navi 10 [Radeon RX 5600 OEM/5600 XT / 5700/5700 XT]"): "gfx1010",
    lspci("Vega 10 XL/XT [Radeon RX Vega 56/64]"): "gfx900",
    lspci("Ellesmere [Radeon RX 470/480/570/570X/580/580X/590]"): "gfx803",
    lspci("Arcturus GL-XL [Instinct MI100]", PROCESSING): "gfx908",
    lspci("Aqua Vanjaram [Instinct MI300X VF]", PROCESSING): "gfx942",
    lspci("Aldebaran/MI200 [Instinct MI250X/MI250]", DISPLAY): "gfx90a",
    lspci("Phoenix1"): "gfx1103",
    lspci("HawkPoint2"): "gfx1103",
    lspci("Strix [Radeon 880M / 890M]"): "gfx1150",
    lspci("Strix Halo [Radeon Graphics / Radeon 8050S Graphics / Radeon 8060S Graphics]"): "gfx1151",
    lspci("Cezanne [Radeon Vega Series / Radeon Vega Mobile Series]"): "gfx90c",
    lspci("Rembrandt [Radeon 680M]"): "gfx1035",
    lspci("Raphael"): "gfx1036",
    "VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Device 9999 (rev 01)": (),
    "01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)": (),
    "00:02.0 VGA compatible controller: Intel Corporation Raptor Lake-S GT1 [UHD Graphics 770]": (),
    # Vulkan and OpenGL
    "AMD Radeon RX 7900 XTX (RADV NAVI31)": "gfx1100",
    "AMD Radeon RX 6800 XT (radeonsi, navi21, LLVM 15.0.7, DRM 3.54, 6.5.0)": "gfx1030",
    "AMD Radeon Graphics (RADV REMBRANDT)": "gfx1035",
    "AMD Radeon Graphics (RADV GFX1151)": "gfx1151",
    "AMD Radeon 780M (RADV PHOENIX)": "gfx1103",
    "AMD Custom GPU 0405 (RADV VANGOGH)": "gfx1033",
    "AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)": "gfx1036",
    # Board makers
    "Sapphire Nitro+ AMD Radeon RX 7900 XTX Vapor-X 24GB GDDR6": "gfx1100",
    "XFX Speedster MERC310 RX7900XT 20G": "gfx1100",
    "ASRock Radeon RX 7900 GRE Challenger 16GB OC": "gfx1100",
    "PowerColor Red Devil RX 6800XT 16GB": "gfx1030",
    "Gigabyte Radeon RX 9070 XT Gaming OC 16G": "gfx1201",
    "ASUS Phoenix Radeon RX 6500 XT": "gfx1034",
    "ASUS ROG Strix Radeon RX 6800": "gfx1030",
    "MSI RX 580 ARMOR 8G OC": "gfx803",
    "Sapphire Pulse RX 7900": "gfx1100",
    "XFX rx5700xt-thicc": "gfx1010",
    # Virtual functions and servers
    "AMD Instinct MI300X VF": "gfx942",
    "AMD INSTINCT MI325X OAM": "gfx942",
    "MI308X": "gfx942",
    "AMD Radeon PRO V620 MxGPU": "gfx1030",
    "AMD Radeon PRO V710 MxGPU": "gfx1101",
    "8x MI300X": "gfx942",
    # Processors with graphics
    "7840U": "gfx1103",
    "AMD Ryzen 7 7840U w/ Radeon  780M Graphics": "gfx1103",
    "model name : AMD Ryzen 9 8945HS w/ Radeon 780M Graphics": "gfx1103",
    "8945HS": "gfx1103",
    "AMD RYZEN AI MAX+ 395 w/ Radeon 8060S": "gfx1151",
    "AI Max+ 395": "gfx1151",
    "Ryzen AI Max+ PRO 395": "gfx1151",
    "AMD Ryzen Z1 Extreme": "gfx1103",
    "ROG Ally Z1 Extreme": "gfx1103",
    "AMD Ryzen 7 5700G with Radeon Graphics": "gfx90c",
    "5700G": "gfx90c",
    "AMD Ryzen AI 9 HX 370 w/ Radeon 890M": "gfx1150",
    "AMD Ryzen AI 7 PRO 350 w/ Radeon 860M": "gfx1152",
    "AMD Ryzen 7 6800H with Radeon Graphics": "gfx1035",
    "AMD Ryzen 9 7950X 16-Core Processor": "gfx1036",
    "AMD Ryzen 5 7600 6-Core Processor": "gfx1036",
    "AMD Ryzen 5 PRO 7530U with Radeon Graphics": "gfx90c",
    "Ryzen 9 7950X, RX 7900 XTX": ("gfx1036", "gfx1100"),
    "AMD Ryzen 7 5700X3D 8-Core Processor": (),
    "AMD Ryzen 7 5700 8-Core Processor": (),
    "Intel(R) Core(TM) i5-7600 CPU @ 3.50GHz": (),
    "i5-7600": (),
    # Mobile cards
    "AMD Radeon RX 6800M": "gfx1031",
    "Radeon RX 7900M": "gfx1100",
    "AMD Radeon(TM) RX 6800S": "gfx1032",
    "AMD Radeon™ RX 7700S": "gfx1102",
    "AMD Radeon RX 7800M": "gfx1101",
    "AMD Radeon(TM) 8060S Graphics": "gfx1151",
    # Parts of names, and what is none
    "mi300": "gfx942",
    "strix": ("gfx1150", "gfx1151"),
    "steam deck": "gfx1033",
    "AMD Radeon(TM) Graphics": ("gfx90c", "gfx1036"),
    "vega": ("gfx900", "gfx906"),
    "GeForce GTX 1060 6GB": (),
    "16 GB": (),
    "": (),
}
